//! Errors about shapes name the line of the program that calls the model.

use burn::tensor::{Int, Tensor};
use grove_backend::Flex;
use grove_models::{
    BertConfig, CausalLm, Gpt2, Gpt2Config, Pretrained, ResNet, ResNetConfig, Vit, VitConfig,
    bert::BertForSequenceClassification,
    resnet::{Naming, Stem},
};
use grove_tree::Key;

use crate::location::location;

fn images(channels: usize) -> Tensor<Flex, 4> {
    Tensor::ones([2, channels, 32, 32], &Default::default())
}

fn integers(n: usize) -> Tensor<Flex, 1, Int> {
    Tensor::zeros([n], &Default::default())
}

fn gpt2() -> Gpt2<Flex> {
    let config =
        Gpt2Config { n_embd: 8, n_layer: 1, n_head: 2, vocab_size: 16, n_positions: 8, ..Gpt2Config::default() };
    Gpt2::init(&config, Key::new(0), &Default::default()).expect("a GPT-2")
}

fn resnet() -> ResNet<Flex> {
    let sizes =
        ResNetConfig { embedding_size: 8, hidden_sizes: vec![8, 16], depths: vec![1, 1], ..ResNetConfig::default() };
    let config = ResNetConfig { stem: Stem::Small, naming: Naming::Torchvision, ..sizes }.with_labels(["cat", "dog"]);
    ResNet::init(&config, Key::new(0), &Default::default()).expect("a ResNet")
}

fn vit() -> Vit<Flex> {
    let sizes = VitConfig { hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 2, ..VitConfig::default() };
    let config = VitConfig { intermediate_size: 32, image_size: [32, 32], patch_size: 8, ..sizes };
    Vit::init(&config.with_labels(["cat", "dog"]), Key::new(0), &Default::default()).expect("a ViT")
}

fn bert() -> BertForSequenceClassification<Flex> {
    let sizes = BertConfig { vocab_size: 50, hidden_size: 8, num_hidden_layers: 1, ..BertConfig::default() };
    let config = BertConfig { num_attention_heads: 2, intermediate_size: 16, ..sizes };
    BertForSequenceClassification::init(&config, Key::new(0), &Default::default()).expect("a BERT")
}

#[test]
fn a_wrong_shape_is_reported_where_the_model_is_called() {
    let (gpt2, resnet, trained, vit, labelled, bert) = (gpt2(), resnet(), resnet(), vit(), vit(), bert());
    let texts = bert.bert.batch(&[vec![1, 2, 3].into(), vec![4].into()]).expect("a batch");
    let ids = |columns| Tensor::<Flex, 2, Int>::ones([2, columns], &Default::default());
    let first = line!() + 2;
    let calls: [Box<dyn FnOnce()>; 6] = [
        Box::new(move || drop(gpt2.loss(ids(4), ids(3), None))),
        Box::new(move || drop(resnet.forward(images(4)))),
        Box::new(move || drop(trained.train(images(4)))),
        Box::new(move || drop(vit.forward(images(4), None))),
        Box::new(move || drop(labelled.loss(images(3), integers(3), None))),
        Box::new(move || drop(bert.loss(&texts, integers(3), None))),
    ];
    for (i, call) in calls.into_iter().enumerate() {
        let (file, line) = location(call);
        assert!(file.ends_with("models/tests/models/callers.rs"), "call {i}: {file}:{line}");
        assert!(line >= first && line < first + 6, "call {i}: line {line}");
    }
}
