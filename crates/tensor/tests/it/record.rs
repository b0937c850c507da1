use crate::{counted, device, tensor, values};
use raddle_tensor::{
    Call, CallArg, DType, Pointwise, Result, Scalar, Tensor, View,
    record::{Mode, Record, Recorder, Recording, Versions, refuse, set_recording},
};
use std::sync::{Arc, Mutex};

/// Writes down what it is told, and refuses in-place relu.
#[derive(Default)]
struct Log(Mutex<Vec<String>>);

struct Watch(Arc<Log>);

impl Recorder for Watch {
    fn begin<'a>(&self, record: Record<'a>) -> Result<Box<dyn Recording + 'a>> {
        match record.call {
            Call::Pointwise { op: Pointwise::relu, .. } => Err(refuse("relu", "not here")),
            _ => Ok(Box::new(Told { log: self.0.clone(), record, versions: Vec::new() })),
        }
    }
    fn missed(&self, _: Record<'_>) -> Result<()> {
        unreachable!("one thread misses nothing")
    }
}

/// An op that is written down when it has been submitted, with the versions that its launches have left its first input at.
struct Told<'a> {
    log: Arc<Log>,
    record: Record<'a>,
    versions: Vec<Option<u64>>,
}

impl Recording for Told<'_> {
    fn claimed(&mut self, versions: &Versions<'_>) -> bool {
        self.versions.push(versions(self.record.inputs[0]).map(|versions| versions.end));
        true
    }
    fn tries_again(&mut self) -> Result<bool> {
        Ok(false)
    }
    fn finish(self: Box<Self>, result: Result<()>) -> Result<()> {
        let Record { call, mode, inputs, outputs } = &self.record;
        let what = match call {
            Call::Pointwise { op, args, .. } => format!("{} {args:?}", op.name()),
            Call::View(view) => format!("{view:?}"),
            other => format!("{other:?}"),
        };
        let (counts, versions) = ((inputs.len(), outputs.len()), &self.versions);
        self.log.0.lock().unwrap().push(format!("{mode:?} {counts:?} {what} {versions:?}"));
        result
    }
}

#[test]
fn a_filled_slot_is_told_of_every_op() {
    let log = Arc::new(Log::default());
    let (x, y) = (counted(&[2, 3]), counted(&[2, 3]));
    x.add(&y).unwrap();
    x.set_slot(Some(Arc::new(Watch(log.clone()))));
    y.mul(&x.clone()).unwrap();
    x.add(2.0).unwrap();
    x.transpose(0, -1).unwrap();
    y.sub_(&x).unwrap();
    assert!(x.relu_().is_err());
    x.detach().exp().unwrap();
    let was = set_recording(false);
    x.exp().unwrap();
    set_recording(was);
    x.max(1, false).unwrap();
    let told = log.0.lock().unwrap().clone();
    assert_eq!(
        told,
        [
            format!("{:?} (2, 1) mul {:?} [Some(1)]", Mode::Fresh, [CallArg::Tensor, CallArg::Tensor]),
            format!(
                "Fresh (1, 1) add {:?} [Some(1)]",
                [CallArg::Tensor, CallArg::Scalar(Scalar::Float(2.0))]
            ),
            format!("Fresh (1, 1) {:?} []", View::Transpose { a: 0, b: 1 }),
            format!("InPlace (2, 1) sub {:?} [Some(2)]", [CallArg::Tensor, CallArg::Tensor]),
            "Fresh (1, 2) Op(MaxMin { largest: true, axis: 1, keepdim: false }) [Some(1)]".to_string(),
        ]
    );
}

/// Of an op that made its result first and copied it then, another thread's write between both would be lost.
#[test]
fn ops_in_place_are_one_op() {
    let mask = Tensor::zeros([2, 3], DType::Bool, device()).unwrap();
    let (seven, place) = (Tensor::scalar(7.0f32, device()).unwrap(), tensor(&[1i64], &[1]));
    let told = |run: &dyn Fn(&Tensor)| -> Vec<String> {
        let (log, x) = (Arc::new(Log::default()), counted(&[2, 3]));
        x.set_slot(Some(Arc::new(Watch(log.clone()))));
        x.note_joined(); // so that views of it are told of as well
        run(&x);
        let told = log.0.lock().unwrap().clone();
        let is_view =
            |line: &String| ["Permute", "Transpose", "AsStrided"].iter().any(|view| line.contains(view));
        told.into_iter().filter(|line| !is_view(line)).collect()
    };
    let ops: [&dyn Fn(&Tensor); 3] = [
        &|x| _ = x.masked_fill_with_(&mask, &seven).unwrap(),
        &|x| _ = x.round_to_(1).unwrap(),
        // Its rows and columns are no table.
        &|x| _ = x.t().unwrap().index_put_(&[Some(&place), Some(&place)], 7.0, false).unwrap(),
    ];
    for (number, op) in ops.iter().enumerate() {
        let told = told(op);
        assert!(told.len() == 1 && told[0].starts_with("InPlace"), "op {number}: {told:?}");
    }
}

#[test]
fn versions_count_writes_and_are_shared_by_views() {
    let x = counted(&[4]);
    let view = x.narrow(0, 0, 2).unwrap();
    let detached = x.detach();
    assert_eq!((x.version(), view.version()), (1, 1), "the upload is a write");
    view.mul_(2.0).unwrap();
    assert_eq!((x.version(), view.version(), detached.version()), (2, 2, 2));
    assert!(view.mul_(&counted(&[3])).is_err());
    assert_eq!(x.version(), 2);
    x.normal_(0.0, 1.0, None).unwrap();
    x.fill_(0.0).unwrap();
    x.narrow(0, 0, 2).unwrap().copy_(&counted(&[2])).unwrap();
    assert_eq!(x.version(), 5);
    assert_eq!(values(&x), [0.0, 1.0, 0.0, 0.0]);
    assert!(view.view_base().unwrap().is(&x) && x.view_base().is_none());
    let id = x.id();
    drop((x, detached));
    assert!(view.view_base().unwrap().id() == id && view.is_view(), "it lives as long as its views");
}

#[test]
fn a_recording_is_told_of_each_launch_of_its_op() {
    let log = Arc::new(Log::default());
    let (x, y) = (counted(&[4]), counted(&[4]));
    x.set_slot(Some(Arc::new(Watch(log.clone()))));
    x.mul_(&y).unwrap();
    x.sum(.., false).unwrap();
    y.exp().unwrap();
    x.scatter(0, &Tensor::from_slice(&[0i64], [1], &x.device()).unwrap(), &y.narrow(0, 0, 1).unwrap())
        .unwrap();
    x.fill_(0.0).unwrap();
    let bad = Tensor::from_slice(&[9i64], [1], &x.device()).unwrap();
    assert!(x.index_add_(0, &bad, &y.narrow(0, 0, 1).unwrap(), 1.0).is_err());
    let told = log.0.lock().unwrap().clone();
    let versions: Vec<&str> = told.iter().map(|text| &text[text.rfind(" [").unwrap() + 1..]).collect();
    // An op that fails has held its operands, and so counts.
    assert_eq!(versions, ["[Some(2)]", "[Some(2)]", "[Some(2), None]", "[Some(3)]", "[Some(4)]"], "{told:?}");
    assert_eq!(x.version(), 4);
}
