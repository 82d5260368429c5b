//! Errors about shapes name the line of the program that calls the layer.

use burn::tensor::Tensor;
use grove_backend::{Conv2dOptions, Flex};
use grove_layers::{AttentionMask, Conv2d, Embedding, LayerNorm, Linear, attend, loss::cross_entropy};
use grove_tree::Key;

use crate::location::location;

fn ones<const D: usize>(shape: [usize; D]) -> Tensor<Flex, D> {
    Tensor::ones(shape, &Default::default())
}

#[test]
fn a_wrong_shape_is_reported_where_the_layer_is_called() {
    let (key, options) = (Key::new(0), Conv2dOptions::default());
    let (linear, norm) = (Linear::<Flex>::new(3, 2, key), LayerNorm::<Flex>::new(4, 1e-5, key));
    let (conv, table) = (Conv2d::<Flex>::new(3, 2, [3, 3], options, key), Embedding::<Flex>::new(5, 4, key));
    let first = line!() + 2;
    let calls: [Box<dyn FnOnce()>; 6] = [
        Box::new(move || drop(linear.forward(ones([2, 4])))),
        Box::new(move || drop(norm.forward(ones([2, 3])))),
        Box::new(move || drop(conv.forward(ones([1, 4, 8, 8])))),
        Box::new(move || drop(table.attend(ones([1, 2, 3])))),
        Box::new(|| {
            drop(attend(ones([1, 1, 2, 4]), ones([1, 1, 2, 3]), ones([1, 1, 2, 3]), &AttentionMask::Full, 1.0, None))
        }),
        Box::new(|| drop(cross_entropy(ones([3, 2]), Tensor::from_ints([0, 1], &Default::default())))),
    ];
    for (i, call) in calls.into_iter().enumerate() {
        let (file, line) = location(call);
        assert!(file.ends_with("callers.rs"), "call {i}: {file}:{line}");
        assert!(line >= first && line <= first + 30, "call {i}: line {line}");
    }
}
