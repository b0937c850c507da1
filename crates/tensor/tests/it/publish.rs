use crate::{counted, device, tensor, values};
use raddle_tensor::{DType, Publisher, Tensor};

#[test]
fn a_version_never_changes() {
    let (weight, steps) = (counted(&[2, 3]).t().unwrap(), tensor(&[7i64], &[1]));
    let publisher = Publisher::new(&[&weight, &steps]).unwrap();
    let first = publisher.load();
    weight.mul_(2.0).unwrap();
    steps.add_(1).unwrap();
    assert_eq!(publisher.publish(&[&weight, &steps]).unwrap(), 1);
    let second = publisher.load();
    assert_eq!((first.id(), second.id()), (0, 1));
    assert_eq!(values(&first.tensors()[0]), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
    assert_eq!(values(&second.tensors()[0]), [0.0, 6.0, 2.0, 8.0, 4.0, 10.0]);
    assert_eq!(second.tensors()[0].strides(), weight.strides());
    assert_eq!(second.tensors()[1].to_vec::<i64>().unwrap(), [8]);
}

#[test]
fn readers_see_whole_versions() {
    let parts: Vec<Tensor> = (0..3).map(|_| Tensor::zeros([64], DType::F32, device()).unwrap()).collect();
    let refs: Vec<&Tensor> = parts.iter().collect();
    let publisher = Publisher::new(&refs).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut last = 0;
                while last < 50 {
                    let version = publisher.load();
                    assert!(version.id() >= last, "versions don't go back");
                    last = version.id();
                    for part in version.tensors() {
                        assert_eq!(values(part), [last as f32; 64]);
                    }
                }
            });
        }
        for _ in 0..50 {
            parts.iter().for_each(|part| _ = part.add_(1.0).unwrap());
            publisher.publish(&refs).unwrap();
        }
    });
}
