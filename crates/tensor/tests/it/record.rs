use crate::{counted, values};
use raddle_tensor::{
    Call, CallArg, Pointwise, Result, Scalar, View,
    record::{Mode, Record, Recorder, refuse, set_recording},
};
use std::sync::{Arc, Mutex};

/// Writes down what it is told, and refuses in-place relu.
#[derive(Default)]
struct Log(Mutex<Vec<String>>);

struct Watch(Arc<Log>);

impl Recorder for Watch {
    fn prepare(&self, record: &Record<'_>) -> Result<()> {
        match record.call {
            Call::Pointwise { op: Pointwise::relu, .. } => Err(refuse("relu", "not here")),
            _ => Ok(()),
        }
    }
    fn record(&self, record: &Record<'_>) -> Result<()> {
        let what = match record.call {
            Call::Pointwise { op, args, .. } => format!("{} {args:?}", op.name()),
            Call::View(view) => format!("{view:?}"),
            other => format!("{other:?}"),
        };
        let (mode, counts) = (record.mode, (record.inputs.len(), record.outputs.len()));
        self.0.0.lock().unwrap().push(format!("{mode:?} {counts:?} {what}"));
        Ok(())
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
            format!("{:?} (2, 1) mul {:?}", Mode::Fresh, [CallArg::Tensor, CallArg::Tensor]),
            format!("Fresh (1, 1) add {:?}", [CallArg::Tensor, CallArg::Scalar(Scalar::Float(2.0))]),
            format!("Fresh (1, 1) {:?}", View::Transpose { a: 0, b: 1 }),
            format!("InPlace (2, 1) sub {:?}", [CallArg::Tensor, CallArg::Tensor]),
            "Fresh (1, 2) MaxMin { largest: true, axis: 1, keepdim: false }".to_string(),
        ]
    );
}

#[test]
fn versions_count_writes_and_are_shared_by_views() {
    let x = counted(&[4]);
    let view = x.narrow(0, 0, 2).unwrap();
    let detached = x.detach();
    assert_eq!((x.version(), view.version()), (0, 0));
    view.mul_(2.0).unwrap();
    assert_eq!((x.version(), view.version(), detached.version()), (1, 1, 1));
    assert!(view.mul_(&counted(&[3])).is_err());
    assert_eq!(x.version(), 1);
    x.normal_(0.0, 1.0, None).unwrap();
    x.fill_(0.0).unwrap();
    x.narrow(0, 0, 2).unwrap().copy_(&counted(&[2])).unwrap();
    assert_eq!(x.version(), 4);
    assert_eq!(values(&x), [0.0, 1.0, 0.0, 0.0]);
    assert!(view.view_base().unwrap().is(&x) && x.view_base().is_none());
    let id = x.id();
    drop((x, detached));
    assert!(view.view_base().unwrap().id() == id && view.is_view(), "it lives as long as its views");
}
