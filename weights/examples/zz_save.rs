//! probe
use burn_flex::Flex;
use grove_tree::{Array, Tree};
use grove_weights::*;
#[derive(Tree, Clone, Debug)]
struct L<B: grove_backend::Backend> {
    weight: Array<B, 2>,
    bias: Array<B, 1>,
}
fn main() {
    let c = Checkpoint::open("weights/tests/fixtures/sharded").unwrap();
    let l = || L::<Flex> { weight: Array::absent([8, 16]), bias: Array::absent([16]) };
    let n = NameMap::new()
        .rule("layers.{i}.weight", "{i}.weight")
        .then(Step::Transpose)
        .rule("layers.{i}.bias", "{i}.bias");
    let (m, r) = load((l(), l(), l()), &c, &n, &LoadOptions::new(&Default::default())).unwrap();
    println!("{r}");
    save_model(&m, &n, "/tmp/probe/single", &SaveOptions::default()).unwrap();
    save_model(&m, &n, "/tmp/probe/shards", &SaveOptions { max_shard_bytes: Some(1200), ..Default::default() })
        .unwrap();
    let (h, _) =
        load((l(), l(), l()), &c, &n, &LoadOptions::new(&Default::default()).dtype(burn::tensor::DType::BF16)).unwrap();
    save_model(&h, &n, "/tmp/probe/bf16", &SaveOptions::default()).unwrap();
}
