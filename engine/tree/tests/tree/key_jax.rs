//! Random keys against JAX: every value equals that of `jax.random` bit for bit.
//!
//! `tools/fixtures/key.py` generates the fixtures and documents their format.

use grove_tree::Key;
use grove_tree::key::KeyRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;

/// Returns the entries of a fixture file.
fn fixture(name: &str) -> Vec<Value> {
    let path = format!("tests/fixtures/key/{name}.json");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn numbers(value: &Value) -> Vec<u32> {
    let number = |value: &Value| u32::try_from(value.as_u64().unwrap()).unwrap();
    value.as_array().unwrap().iter().map(number).collect()
}

fn key(value: &Value) -> Key {
    Key::from_words(numbers(value).try_into().unwrap())
}

fn keys(value: &Value) -> Vec<Key> {
    value.as_array().unwrap().iter().map(key).collect()
}

fn float_bits(values: Vec<f32>) -> Vec<u32> {
    let bits = |value: f32| {
        if value.is_nan() { 0x7fc0_0000 } else { value.to_bits() }
    };
    values.into_iter().map(bits).collect()
}

/// One call of a function in a fixture.
struct Call {
    key: Key,
    size: usize,
    arguments: Vec<u32>,
}

impl Call {
    fn float(&self, index: usize) -> f32 {
        f32::from_bits(self.arguments[index])
    }
}

/// Compares all entries of a fixture file with the results of `sample`.
fn check(name: &str, sample: impl Fn(&Call, &Value) -> Vec<u32>) {
    for entry in fixture(name) {
        let call = Call {
            key: key(&entry["key"]),
            size: numbers(&entry["shape"]).into_iter().map(|size| size as usize).product(),
            arguments: numbers(&entry["arguments"]),
        };
        let values = sample(&call, &entry);
        let label = format!("{name}{:?} of {:?}, {}", call.arguments, call.key, entry["shape"]);
        if entry.get("values").is_some() {
            assert_eq!(values, numbers(&entry["values"]), "{label}");
        } else {
            check_digest(&values, &entry, &label);
        }
    }
}

fn check_digest(values: &[u32], entry: &Value, label: &str) {
    assert_eq!(values[..8], numbers(&entry["first"]), "first of {label}");
    assert_eq!(values[values.len() - 8..], numbers(&entry["last"]), "last of {label}");
    let (mut sum, mut weighted, mut xor) = (0_u64, 0_u64, 0_u32);
    for (position, &value) in (1..).zip(values) {
        sum = sum.wrapping_add(value.into());
        weighted = weighted.wrapping_add(u64::from(value).wrapping_mul(position));
        xor ^= value;
    }
    assert_eq!(sum.to_string(), entry["sum"], "sum of {label}");
    assert_eq!(weighted.to_string(), entry["weighted"], "weighted sum of {label}");
    assert_eq!(xor, entry["xor"], "exclusive or of {label}");
}

#[test]
fn seeds_split_and_fold_in() {
    for entry in fixture("keys") {
        let made = Key::new(entry["seed"].as_i64().unwrap() as u64);
        assert_eq!(made, key(&entry["words"]), "seed {}", entry["seed"]);
        let (left, right) = made.split();
        assert_eq!(vec![left, right], keys(&entry["split"]));
        assert_eq!(made.split_n(5), keys(&entry["split_n"]));
        for pair in entry["fold_in"].as_array().unwrap() {
            let data = pair[0].as_u64().unwrap() as u32;
            assert_eq!(made.fold_in(data), key(&pair[1]), "fold_in {data}");
        }
        let deep = made.split_n(3)[2].split().1.fold_in(11);
        assert_eq!(deep, key(&entry["deep"]));
    }
}

#[test]
fn generator_words() {
    for entry in fixture("bits64") {
        let mut rng = KeyRng::seed_from_u64(entry["seed"].as_u64().unwrap());
        for value in entry["values"].as_array().unwrap() {
            assert_eq!(rng.next_u64().to_string(), value.as_str().unwrap());
        }
    }
}

#[test]
fn bits() {
    check("bits", |call, _| call.key.bits(call.size));
}

#[test]
fn uniform() {
    check("uniform", |call, _| float_bits(call.key.uniform_vec(call.size, call.float(0), call.float(1))));
}

#[test]
fn bernoulli() {
    check("bernoulli", |call, _| {
        let tosses = call.key.bernoulli_vec(call.size, call.float(0));
        tosses.into_iter().map(u32::from).collect()
    });
}

#[test]
fn normal() {
    check("normal", |call, _| float_bits(call.key.normal_vec(call.size)));
}

#[test]
fn truncated_normal() {
    check("truncated_normal", |call, _| {
        float_bits(call.key.truncated_normal_vec(call.size, call.float(0), call.float(1)))
    });
}

#[test]
fn gumbel() {
    check("gumbel", |call, _| float_bits(call.key.gumbel_vec(call.size)));
}

#[test]
fn randint() {
    check("randint", |call, _| {
        let [low, high] = [0, 1].map(|index| call.arguments[index] as i32);
        let integers = call.key.randint_vec(call.size, low, high);
        integers.into_iter().map(|integer| integer as u32).collect()
    });
}

#[test]
fn permutation() {
    check("permutation", |call, _| {
        let order = call.key.permutation(call.size);
        order.into_iter().map(|index| index as u32).collect()
    });
}

#[test]
fn categorical() {
    check("categorical", |call, entry| {
        let logits = match entry.get("uniform_logits") {
            Some(inputs) => key(inputs).uniform_vec(call.size, -4.0, 4.0),
            None => numbers(&entry["logits"]).into_iter().map(f32::from_bits).collect(),
        };
        let shape = numbers(&entry["shape"]);
        let classes = shape[shape.len() - 1] as usize;
        let indices = call.key.categorical_vec(&logits, classes);
        if classes == call.size {
            assert_eq!(call.key.categorical_row(&logits), indices[0]);
        }
        indices.into_iter().map(|index| index as u32).collect()
    });
}

/// The tensor functions return the shape, order and values of the host functions.
mod tensors {
    use burn::tensor::{Tensor, TensorData};
    use burn_flex::Flex;

    use super::*;

    type Device = burn::tensor::Device<Flex>;

    fn equal(data: TensorData, expected: impl Into<TensorData>) {
        data.assert_eq(&expected.into(), false);
    }

    #[test]
    fn floats() {
        let (key, device) = (Key::new(2), Device::default());
        let data = |values: Vec<f32>, shape: [usize; 3]| TensorData::new(values, shape);
        let shape = [2, 3, 4];
        let uniform = key.uniform::<Flex, 3>(shape, -1.0, 2.0, &device);
        equal(uniform.into_data(), data(key.uniform_vec(24, -1.0, 2.0), shape));
        let normal = key.normal::<Flex, 3>(shape, &device);
        equal(normal.into_data(), data(key.normal_vec(24), shape));
        let truncated = key.truncated_normal::<Flex, 3>(shape, -2.0, 2.0, &device);
        equal(truncated.into_data(), data(key.truncated_normal_vec(24, -2.0, 2.0), shape));
        let gumbel = key.gumbel::<Flex, 3>(shape, &device);
        equal(gumbel.into_data(), data(key.gumbel_vec(24), shape));
    }

    #[test]
    fn bools_and_integers() {
        let (key, device) = (Key::new(2), Device::default());
        let tosses = key.bernoulli::<Flex, 2>([4, 5], 0.3, &device);
        equal(tosses.into_data(), TensorData::new(key.bernoulli_vec(20, 0.3), [4, 5]));
        let bits = key.random_bits::<Flex, 2>([4, 5], &device);
        equal(bits.into_data(), TensorData::new(key.bits(20), [4, 5]));
        let integers = key.randint::<Flex, 2>([4, 5], -7, 7, &device);
        assert_eq!(integers.dims(), [4, 5]);
        let integers: Vec<i32> = integers.into_data().iter::<i32>().collect();
        assert_eq!(integers, key.randint_vec(20, -7, 7));
    }

    #[test]
    fn categorical_rows() {
        let (key, device) = (Key::new(2), Device::default());
        let logits = Key::new(3).normal::<Flex, 2>([6, 11], &device);
        let expected = key.categorical_vec(&Key::new(3).normal_vec(66), 11);
        let indices = key.categorical(logits);
        assert_eq!(indices.dims(), [6]);
        assert!(indices.into_data().iter::<i64>().eq(expected.into_iter().map(|index| index as i64)));
    }

    #[test]
    fn no_elements() {
        let (key, device) = (Key::new(2), Device::default());
        let empty: Tensor<Flex, 2> = key.normal([0, 3], &device);
        assert_eq!(empty.dims(), [0, 3]);
        let indices = key.categorical(Tensor::<Flex, 2>::zeros([0, 3], &device));
        assert_eq!(indices.dims(), [0]);
    }
}
