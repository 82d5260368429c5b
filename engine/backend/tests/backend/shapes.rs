//! Shape rules: mismatched shapes are rejected with the operation, the shapes and the rule.

use grove_backend::{
    Conv2dOptions, InputPrecision, Pool2dOptions, Quantization, Steps,
    ops::{
        AdamStep, Attention, BatchNorm, Chunk, Concat, Embedding, Linear, Lstm, Matmul, Nll, Operation,
        QuantizedLinear, Rope, RowNorm, Scale, Shapes, UpdateCache,
    },
};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Returns the output shapes of an operation for these input shapes. An empty input shape represents a missing input.
fn shapes(operation: impl Into<Operation>, inputs: &[&[usize]]) -> Result<Vec<Vec<usize>>, String> {
    let inputs: Shapes = inputs.iter().map(|sizes| (!sizes.is_empty()).then(|| sizes.to_vec().into())).collect();
    let operation = operation.into();
    let run = AssertUnwindSafe(|| operation.shapes(&inputs).iter().map(|shape| shape.to_vec()).collect());
    catch_unwind(run).map_err(|panic| panic.downcast_ref::<String>().cloned().unwrap_or_default())
}

#[track_caller]
fn refused(operation: impl Into<Operation>, inputs: &[&[usize]], message: &str) {
    let found = shapes(operation, inputs).expect_err(message);
    assert!(found.contains(message), "{found}, not {message}");
}

const ATTENTION: Attention = Attention { scale: 1.0, causal: false, window: None, dropout: None };

#[test]
fn gives_output_shapes() {
    let gives = |operation: Operation, inputs: &[&[usize]], outputs: &[&[usize]]| {
        assert_eq!(
            shapes(operation, inputs).as_deref(),
            Ok(&outputs.iter().map(|x| x.to_vec()).collect::<Vec<_>>()[..])
        );
    };
    gives(Matmul.into(), &[&[3, 1, 2, 4], &[1, 5, 4, 6]], &[&[3, 5, 2, 6]]);
    gives(Linear.into(), &[&[4], &[4, 6], &[6]], &[&[6]]);
    gives(ATTENTION.into(), &[&[2, 4, 3, 8], &[2, 2, 5, 8], &[2, 2, 5, 8], &[], &[2], &[1, 4, 1, 5]], &[&[2, 4, 3, 8]]);
    let conv = Conv2dOptions { stride: [2, 1], padding: [1, 0], dilation: [1, 2], groups: 2 };
    gives(conv.into(), &[&[1, 4, 9, 9], &[6, 2, 3, 3]], &[&[1, 6, 5, 5]]);
    gives(RowNorm { centred: true, eps: 1e-5 }.into(), &[&[7, 3], &[3]], &[&[7, 3], &[7, 2]]);
    gives(Chunk { count: 2, axis: 1 }.into(), &[&[3, 4]], &[&[3, 2], &[3, 2]]);
    gives(Concat { axis: 0 }.into(), &[&[3, 4], &[3, 4], &[3, 4]], &[&[9, 4]]);
    gives(
        AdamStep.into(),
        &[&[2], &[2], &[2], &[2], &[3, 1], &[3, 1], &[3, 1], &[3, 1], &[10]],
        &[&[2], &[2], &[2], &[3, 1], &[3, 1], &[3, 1]],
    );
}

#[test]
fn refuses_what_does_not_fit() {
    // A check of divisibility only would accept this as 20 classes.
    refused(Nll, &[&[4, 10], &[2]], "nll of shapes [4, 10], [2]: expected labels [rows] for logits [rows, classes]");
    refused(Matmul, &[&[2, 3], &[4, 5]], "matmul of shapes [2, 3], [4, 5]");
    refused(Matmul, &[&[2, 3, 4], &[3, 4, 5]], "with broadcastable batch axes");
    refused(Linear, &[&[2, 3], &[4, 5]], "linear of shapes [2, 3], [4, 5]: expected x [.., in] by weight [in, out]");
    refused(Linear, &[&[2, 4], &[4, 5], &[4]], "bias [out]");
    refused(Linear, &[&[2, 4], &[4, 5, 1]], "input 1 with 2 axes");
    let format = Quantization::Q8_0;
    refused(
        QuantizedLinear { format, precision: InputPrecision::F32 },
        &[&[2, 33], &[5, format.block_bytes()]],
        "quantized_linear",
    );
    refused(Rope { interleaved: false }, &[&[2, 3, 1, 6], &[2, 3, 2], &[2, 3, 3]], "apply_rope");
    refused(ATTENTION, &[&[2, 4, 3, 8], &[2, 3, 5, 8], &[2, 3, 5, 8]], "n_head to be a multiple");
    refused(ATTENTION, &[&[2, 4, 3, 8], &[2, 4, 5, 8], &[2, 4, 6, 8]], "attention");
    let (none, mask): (&[usize], &[usize]) = (&[], &[2, 4, 3, 4]);
    refused(ATTENTION, &[&[2, 4, 3, 8], &[2, 4, 5, 8], &[2, 4, 5, 8], none, none, mask], "mask");
    refused(UpdateCache { at: 3, seen: 0..4 }, &[&[1, 2, 4, 5], &[1, 2, 4, 5], &[1, 2, 2, 5], &[1, 2, 2, 5]], "of 4");
    refused(Conv2dOptions::default(), &[&[1, 4, 9, 9], &[6, 2, 3, 3]], "conv2d");
    refused(Conv2dOptions::default(), &[&[1, 2, 2, 2], &[6, 2, 3, 3]], "does not fit into an image");
    let pool = Pool2dOptions { kernel: [2, 2], stride: [1, 1], padding: [2, 0] };
    refused(pool, &[&[1, 1, 4, 4]], "padding of more than half of a window");
    refused(BatchNorm { relu: false, eps: 0.0 }, &[&[1, 2, 3, 3], &[2], &[3]], "batch_norm");
    refused(RowNorm { centred: true, eps: 0.0 }, &[&[2, 3], &[2]], "row_norm");
    refused(Embedding, &[&[2, 3], &[4]], "embedding");
    refused(Chunk { count: 3, axis: 0 }, &[&[4]], "3 equal parts of axis 0");
    refused(Concat { axis: 0 }, &[&[4], &[5]], "parts with the same sizes");
    refused(AdamStep, &[&[2], &[2], &[3], &[2], &[10]], "adam_step");
    refused(Scale, &[&[2], &[2]], "a factor [1]");
    let lstm = Lstm { steps: Steps::new([2, 1], false) };
    refused(lstm, &[&[3, 4], &[20, 4], &[20, 5], &[20], &[3, 5], &[3, 5]], "lstm");
}
