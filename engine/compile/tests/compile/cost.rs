//! Costs by path of the arguments, and their images.

use burn::tensor::{Int, Tensor};
use grove_backend::{Autodiff, Flex};
use grove_compile::{Cost, Traced, scan, trace_skeleton};
use grove_models::{CausalLm, Gpt2, Gpt2Config, Pretrained};
use grove_tree::Array;

type B = Flex;

fn gpt2() -> (Gpt2<B>, Array<B, 2, Int>) {
    let config = Gpt2Config { n_layer: 3, ..Gpt2Config::default() };
    let skeleton = grove_transform::eval_shape::<B, _>(|init| Gpt2::<B>::new(&config, init)).unwrap();
    (skeleton, Array::absent([2, 64]))
}

/// Fails unless the costs of the parts add up to the total.
fn assert_whole(cost: &Cost, depth: usize) {
    let paths = cost.by_path(depth).paths;
    let sum =
        |value: fn(&grove_compile::OperationCost) -> u128| paths.iter().map(|(_, cost)| value(cost)).sum::<u128>();
    assert_eq!(sum(|cost| cost.flops), cost.total.flops);
    assert_eq!(sum(|cost| cost.bytes), cost.total.bytes);
    assert_eq!(sum(|cost| cost.count as u128), cost.total.count as u128);
}

#[test]
fn blocks_of_a_model_cost_the_same() {
    let forward =
        |(model, ids): (Gpt2<Traced>, Array<Traced, 2, Int>)| Array::<_, 3>::new(model.forward(ids.val(), None));
    let cost = trace_skeleton(forward, &gpt2()).cost();
    (0..6).for_each(|depth| assert_whole(&cost, depth));
    let parts = cost.by_path(3);
    let of =
        |path: &str| parts.paths.iter().find(|(name, _)| name == path).unwrap_or_else(|| panic!("{path}\n{parts}")).1;
    assert_eq!(of("0.h.1"), of("0.h.2"), "{parts}");
    let deeper = cost.by_path(4);
    let of =
        |path: &str| deeper.paths.iter().find(|(name, _)| name == path).unwrap_or_else(|| panic!("{path}\n{deeper}")).1;
    // The products with the weights of attention and of the MLP, and a margin for the other operations.
    let products = 2 * 128 * 768 * 768_u128;
    let (attention, mlp) = (of("0.h.1.attn").flops, of("0.h.1.mlp").flops);
    assert!(attention >= 4 * products && attention < 4 * products + products / 4, "{attention}\n{deeper}");
    assert!(mlp >= 8 * products && mlp < 8 * products + products / 4, "{mlp}\n{deeper}");
    assert!(deeper.to_string().starts_with("path"), "{deeper}");
}

#[test]
fn derivatives_belong_to_the_layers() {
    use grove_optim::{Adamw, GradientTransformation, adamw};
    let step = |(model, ids): (Gpt2<Traced>, Array<Traced, 2, Int>)| {
        let lift = || Tensor::<Autodiff<Traced>, 2, Int>::from_primitive(ids.val().into_primitive());
        let (loss, grads) =
            grove_transform::value_and_grad(&model, |model| model.next_token_loss(lift(), lift(), None));
        let optimizer = adamw(1e-3, Adamw::default());
        let state = optimizer.init(&model);
        (optimizer.step(grads, state, model), Array::<_, 1>::new(loss))
    };
    let cost = trace_skeleton(step, &gpt2()).cost();
    (0..6).for_each(|depth| assert_whole(&cost, depth));
    let parts = cost.by_path(4);
    let of =
        |path: &str| parts.paths.iter().find(|(name, _)| name == path).unwrap_or_else(|| panic!("{path}\n{parts}")).1;
    // The backward pass has two more products for each product.
    let products = 2 * 128 * 768 * 768_u128;
    for block in 0..3 {
        let (attention, mlp) = (of(&format!("0.h.{block}.attn")).flops, of(&format!("0.h.{block}.mlp")).flops);
        assert!(attention >= 12 * products && attention < 15 * products, "{attention}\n{parts}");
        assert!(mlp >= 24 * products && mlp < 27 * products, "{mlp}\n{parts}");
    }
    if let Some(folder) = std::env::var_os("GROVE_COST_IMAGES") {
        let folder = std::path::Path::new(&folder);
        std::fs::write(folder.join("operations.svg"), cost.to_svg()).unwrap();
        std::fs::write(folder.join("paths.svg"), parts.to_svg()).unwrap();
        println!("{cost}\n\n{parts}");
    }
}

/// Each attribution rule by itself.
#[test]
fn equations_belong_to_arguments() {
    type Model<T> = std::collections::BTreeMap<String, Array<T, 2>>;
    let f = |(model, x): (Model<Traced>, Array<Traced, 2>)| {
        let scale = Tensor::<Traced, 2>::full([2, 3], 2.0, &x.val().device()).exp();
        let x = x.val() * scale;
        let y = x.matmul(model["a"].val().transpose() * 1.0).tanh();
        Array::<_, 2>::new(y.matmul(model["b"].val()))
    };
    let model: Model<B> = [("a", [4, 3]), ("b", [4, 5])]
        .into_iter()
        .map(|(name, shape)| (name.to_owned(), Array::absent(shape)))
        .collect();
    let cost = trace_skeleton(f, &(model, Array::<B, 2>::absent([2, 3]))).cost();
    let parts = cost.by_path(2);
    let counts: Vec<_> = parts.paths.iter().map(|(path, cost)| (path.as_str(), cost.count)).collect();
    // `a` owns its transpose, the product by 1, the matrix product and tanh. The data own the constant and exp, which precede
    // the first use of an argument, and the product with them.
    assert_eq!(counts, [("0.a", 4), ("0.b", 1), ("1", 3)], "{parts}");
    assert!(parts.to_string().starts_with("path    count     FLOPs     bytes\n0.a"), "{parts}");
}

#[test]
fn images_are_svg() {
    let f = |(x, y): (Array<Traced, 2>, Array<Traced, 2>)| Array::<_, 2>::new(x.val().matmul(y.val()).exp());
    let cost = trace_skeleton(f, &(Array::<B, 2>::absent([30, 40]), Array::<B, 2>::absent([40, 20]))).cost();
    let svg = cost.to_svg();
    assert!(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" width=") && svg.ends_with("</svg>\n"), "{svg}");
    for part in
        [">dot_general</text>", ">exp</text>", "48.0 k (98.8 %)", "peak memory 10.4 k bytes", "FLOPs, 48.6 k in total"]
    {
        assert!(svg.contains(part), "{part}\n{svg}");
    }
    assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
    assert!(cost.by_path(1).to_svg().contains("Cost by path"));
}

/// Each loop is counted once, at any nesting depth.
#[test]
fn loops_in_loops() {
    fn nested(depth: u32, x: Array<Traced, 1>) -> Array<Traced, 1> {
        if depth == 0 {
            return Array::new(x.val() * 2.0);
        }
        let steps = Array::<Traced, 2>::new(Tensor::zeros([2, 1], &x.val().device()));
        let step = |x: Array<Traced, 1>, _: Array<Traced, 1>| {
            let next = nested(depth - 1, x);
            (next.clone(), next)
        };
        scan(step, x, steps).0
    }
    let graph = trace_skeleton(|x: Array<Traced, 1>| nested(30, x), &Array::<B, 1>::absent([3]));
    let products = graph.cost().by_operation.into_iter().find(|(name, _)| name == "mul").expect("a product").1;
    assert_eq!((products.count, products.flops), (1 << 30, 3 << 30));
}
