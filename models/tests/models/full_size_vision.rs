//! ResNet-50 and ViT-B/16 against torchvision and transformers, with the folder that `tools/check_vision.py make` writes:
//! `GROVE_VISION=DIR cargo test -p grove-models --test models full_size_vision:: -- --ignored --nocapture`

use burn::tensor::Tensor;
use burn_flex::Flex;
use grove_models::{
    resnet::ResNet,
    vision::{ImageClassifier, predictions},
    vit::Vit,
};
use grove_weights::TensorFiles;
use std::path::PathBuf;

fn check<M: ImageClassifier<Flex>>(name: &str) {
    let directory = PathBuf::from(std::env::var("GROVE_VISION").expect("GROVE_VISION names the folder")).join(name);
    let (model, _) = M::from_path(directory.join("model.safetensors"), &Default::default(), None).expect("it loads");
    let reference = TensorFiles::open(directory.join("reference.safetensors")).expect("the reference");
    let tensor = |name: &str| reference.tensor(name).expect("a tensor");
    let logits = model.logits(Tensor::from_data(tensor("pixels"), &Default::default()));
    let expected = Tensor::<Flex, 2>::from_data(tensor("logits"), &Default::default());
    let apart = (logits.clone() - expected.clone()).abs().max().into_scalar();
    let classes = |logits| -> Vec<Vec<usize>> {
        let found = predictions(logits, model.labels(), 5);
        found.iter().map(|row| row.iter().map(|prediction| prediction.class).collect()).collect()
    };
    let (found, expected) = (classes(logits), classes(expected));
    println!("{name}: logits apart by at most {apart:.1e}; the five likeliest of each image: {found:?}");
    assert!(apart <= 1e-3, "logits are apart by {apart}");
    assert_eq!(found, expected);
}

#[test]
#[ignore = "needs the folder of tools/check_vision.py"]
fn resnet50() {
    check::<ResNet<Flex>>("resnet50");
}

#[test]
#[ignore = "needs the folder of tools/check_vision.py"]
fn vit_base() {
    check::<Vit<Flex>>("vit");
}
