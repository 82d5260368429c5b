/// Panics if next-token loss is undefined: rows have fewer than 2 tokens, or ids and labels differ in shape.
///
/// # Shapes
/// - ids, labels `[b, t]`
#[track_caller]
pub(crate) fn check_shifted(ids: [usize; 2], labels: [usize; 2]) {
    assert!(ids == labels, "ids {ids:?} and labels {labels:?} differ in shape: give each token a label");
    let [b, t] = ids;
    assert!(
        b > 0 && t > 1,
        "ids have shape {ids:?}, but a loss needs rows of at least 2 tokens: the first token has no predecessor"
    );
}

#[cfg(test)]
mod tests {
    use crate::{
        CausalLm, Gpt2, GptNeo, Llama, Pretrained, gpt_neo::GptNeoConfig, gpt2::Gpt2Config, llama::LlamaConfig,
    };
    use burn::tensor::{Int, Tensor};
    use grove_backend::Flex;
    use grove_tree::Key;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    fn refuses(name: &str, loss: impl Fn(Tensor<Flex, 2, Int>, Tensor<Flex, 2, Int>) -> Tensor<Flex, 1>) {
        let ids = |columns| Tensor::<Flex, 2, Int>::ones([3, columns], &Default::default());
        let message = |t, labels| {
            let panic = catch_unwind(AssertUnwindSafe(|| loss(ids(t), ids(labels)))).expect_err("it is refused");
            panic.downcast_ref::<String>().cloned().expect("a sentence")
        };
        assert!(
            message(1, 1).contains("[3, 1], but a loss needs rows of at least 2 tokens"),
            "{name}: {}",
            message(1, 1)
        );
        assert!(message(4, 3).contains("ids [3, 4] and labels [3, 3] differ in shape"), "{name}: {}", message(4, 3));
        assert!(loss(ids(2), ids(2)).into_scalar().is_finite(), "{name}: 2 tokens have a loss");
    }

    #[test]
    fn a_loss_of_one_token_is_refused_with_a_sentence() {
        let (key, device) = (Key::new(0), Default::default());
        let config =
            Gpt2Config { n_layer: 1, n_head: 2, n_embd: 8, n_positions: 8, vocab_size: 10, ..Default::default() };
        let model = Gpt2::<Flex>::init(&config, key, &device).expect("a model");
        refuses("gpt2", |ids, labels| model.loss(ids, labels, None));

        let config = LlamaConfig {
            hidden_size: 8,
            intermediate_size: 16,
            num_hidden_layers: 1,
            num_attention_heads: 2,
            num_key_value_heads: Some(1),
            max_position_embeddings: 8,
            vocab_size: 10,
            ..Default::default()
        };
        let model = Llama::<Flex>::init(&config, key, &device).expect("a model");
        refuses("llama", |ids, labels| model.loss(ids, labels, None));

        let config = GptNeoConfig {
            hidden_size: 8,
            // The default list of attention kinds has 24 entries.
            num_layers: 24,
            num_heads: 2,
            max_position_embeddings: 8,
            vocab_size: 10,
            ..Default::default()
        };
        let model = GptNeo::<Flex>::init(&config, key, &device).expect("a model");
        refuses("gpt_neo", |ids, labels| model.loss(ids, labels, None));
    }
}
