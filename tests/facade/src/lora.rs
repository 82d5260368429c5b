//! LoRA on GPT-2.

use grove::{layers::lora, prelude::*};
use std::error::Error;

/// Trains low-rank updates on batches of token ids, `[b, t]`, and adds them to the weights.
pub fn finetune(source: &str, batches: &[Array<Flex, 2, Int>]) -> Result<Gpt2<Flex>, Box<dyn Error>> {
    let model = Gpt2::<Flex>::from_pretrained(source, &Default::default())?;
    let mut model = lora::add(model, &["h.*.attn.c_attn"], 4, 8.0, Key::new(0))?;
    let adapters = GradOptions::new().only(lora::trainable());
    let optimizer = adamw(1e-3, Adamw::default());
    let mut state = optimizer.init(&model);
    for x in batches {
        let (_loss, grads) = adapters.value_and_grad_with(&model, x, |model, x| model.loss(x.val(), x.val(), None));
        (model, state) = optimizer.step(grads, state, model);
    }
    Ok(lora::merge(model))
}
