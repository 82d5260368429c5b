//! Partial fine-tuning of a pretrained model: its last block and the last norm.

use grove::{prelude::*, tree::by_path};

/// Trains the last block and the last norm on batches of token ids, `[b, t]`.
pub fn finetune<B: Backend>(mut model: Gpt2<B>, batches: &[Tensor<B, 2, Int>]) -> Gpt2<B> {
    let optimizer = adamw(1e-2, Adamw::default().weight_decay(0.1));
    let trainable = by_path(&format!("h.{}.**", model.h.len() - 1)) | by_path("ln_f.**");
    let loss = |model: Gpt2<_>, ids: &Tensor<B, 2, Int>, key| {
        model.loss(Tensor::from_inner(ids.clone()), Tensor::from_inner(ids.clone()), Some(key))
    };
    let step = train_step(loss, &optimizer, StepOptions { trainable, ..Default::default() });
    let mut state = optimizer.init(&model);
    for (i, ids) in batches.iter().enumerate() {
        (model, state, _) = step(model, state, ids, Key::new(0).fold_in(i as u32));
    }
    model
}
