//! Optimizers from configuration files, including hostile ones.

use grove_optim::*;
use grove_tree::{Backend, eq};

use crate::fixture::{Leaves, grads, tree};

fn run<B: Backend, T: GradientTransformation<B, Leaves<B>>>(optimizer: &T, device: &B::Device) -> Leaves<B> {
    let mut params = tree::<B>("params", device);
    let mut state = optimizer.init(&params);
    for step in 1..=4 {
        let (updates, next) = optimizer.update(grads("grads", step, device), state, &params);
        (params, state) = (apply_updates(params, updates), next);
    }
    params
}

fn built<B: Backend>(text: &str) -> Boxed<B, Leaves<B>> {
    OptimizerConfig::from_json(text).and_then(|config| config.build()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn same_as_written_out<B: Backend>(device: B::Device) {
    let check = |text: &str, expected: Leaves<B>| assert!(eq(&run(&built::<B>(text), &device), &expected), "{text}");
    let schedule = warmup_cosine_decay_schedule(0.0, 0.1, 2, 10, 0.01);
    let options = Adamw { weight_decay: 0.3.into(), b2: 0.95.into(), mask: Some(matrices()), ..Adamw::default() };
    check(
        r#"{"name": "adamw", "weight_decay": 0.3, "b2": 0.95, "weight_decay_mask": "matrices", "clip": 2,
            "learning_rate": {"warmup_cosine": {"peak_value": 0.1, "warmup_steps": 2, "decay_steps": 10, "end_value": 0.01}}}"#,
        run(&chain((clip_by_global_norm(2.0), adamw::<B>(schedule, options))), &device),
    );
    let options = Sgd { momentum: Some(0.9.into()), nesterov: true };
    let frozen = grove_tree::by_path("b") | grove_tree::by_path("d*");
    let expected = selective_transform(multi_steps(sgd::<B>(0.1, options), 2), frozen);
    check(
        r#"{"name": "sgd", "learning_rate": 0.1, "momentum": 0.9, "nesterov": true, "frozen": ["b", "d*"], "accumulate": 2}"#,
        run(&expected, &device),
    );
    let options = Adafactor { min_dim_size_to_factor: 2, weight_decay_rate: Some(0.1.into()), ..Adafactor::default() };
    let mask = Some(grove_tree::by_path("a"));
    check(
        r#"{"name": "adafactor", "learning_rate": 0.1, "min_dim_size_to_factor": 2, "weight_decay_rate": 0.1, "weight_decay_mask": ["a"]}"#,
        run(&adafactor::<B>(0.1, Adafactor { weight_decay_mask: mask, ..options }), &device),
    );
}

#[test]
fn defaults_are_those_of_the_functions() {
    type B = grove_backend::Flex;
    let device = Default::default();
    let expected = |name| match name {
        OptimizerName::Adabelief => run(&adabelief::<B>(0.1, Adabelief::default()), &device),
        OptimizerName::Adafactor => run(&adafactor::<B>(0.1, Adafactor::default()), &device),
        OptimizerName::Adagrad => run(&adagrad::<B>(0.1, Adagrad::default()), &device),
        OptimizerName::Adam => run(&adam::<B>(0.1, Adam::default()), &device),
        OptimizerName::Adamw => run(&adamw::<B>(0.1, Adamw::default()), &device),
        OptimizerName::Amsgrad => run(&amsgrad::<B>(0.1, Amsgrad::default()), &device),
        OptimizerName::Lamb => run(&lamb::<B>(0.1, Lamb::default()), &device),
        OptimizerName::Lars => run(&lars::<B>(0.1, Lars::default()), &device),
        OptimizerName::Lion => run(&lion::<B>(0.1, Lion::default()), &device),
        OptimizerName::Muon => run(&muon::<B>(0.1, Muon::default()), &device),
        OptimizerName::Nadamw => run(&nadamw::<B>(0.1, Adamw::default()), &device),
        OptimizerName::Radam => run(&radam::<B>(0.1, Radam::default()), &device),
        OptimizerName::Rmsprop => run(&rmsprop::<B>(0.1, Rmsprop::default()), &device),
        OptimizerName::Sgd => run(&sgd::<B>(0.1, Sgd::default()), &device),
        other => panic!("{other}: write it here"),
    };
    for name in OptimizerName::ALL {
        let text = format!(r#"{{"name": "{name}", "learning_rate": 0.1}}"#);
        assert!(eq(&run(&built::<B>(&text), &device), &expected(name)), "{name}");
    }
}

#[test]
fn there_and_back() {
    for text in [
        r#"{"name":"adam","learning_rate":0.1}"#,
        r#"{"name":"lion","learning_rate":{"linear":{"init_value":0.1,"end_value":0.0,"transition_steps":9}},"weight_decay_mask":["a","b.**"],"clip":1.5,"frozen":["c"],"accumulate":4,"apply_if_finite":3,"b1":0.8}"#,
        r#"{"name":"adamw","learning_rate":{"join":{"schedules":[0.1,{"cosine_decay":{"init_value":0.1,"decay_steps":5,"alpha":0.0}}],"boundaries":[3]}},"weight_decay_mask":"matrices"}"#,
    ] {
        let config = OptimizerConfig::from_json(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(serde_json::to_string(&config).unwrap(), text);
        assert_eq!(serde_json::from_str::<OptimizerConfig>(text).unwrap(), config);
    }
}

#[test]
fn what_is_wrong_is_said() {
    let cases = [
        ("", "this is no configuration"),
        ("[]", "it is an object"),
        (r#"{"learning_rate": 1}"#, "`name` is missing"),
        (r#"{"name": 3, "learning_rate": 1}"#, "`name`: invalid type"),
        (r#"{"name": "adam"}"#, "`learning_rate` is missing"),
        (
            r#"{"name": "adamm", "learning_rate": 1}"#,
            "no optimizer `adamm`, did you mean `adam`?; there are: adabelief, adafactor",
        ),
        (r#"{"name": "adam", "learning_rate": 0}"#, "`learning_rate` is 0, and has to be positive"),
        (r#"{"name": "adam", "learning_rate": -1e-3}"#, "`learning_rate` is -0.001"),
        (r#"{"name": "adam", "learning_rate": 1e999}"#, "no configuration"),
        (r#"{"name": "adam", "learning_rate": "fast"}"#, "`learning_rate`: "),
        (r#"{"name": "adam", "learning_rate": {"cosin": {}}}"#, "unknown variant `cosin`"),
        (r#"{"name": "adam", "learning_rate": {"linear": {"init_value": 1}}}"#, "missing field"),
        (
            r#"{"name": "adam", "learning_rate": {"linear": {"init_value": 0, "end_value": 0, "transition_steps": 1}}}"#,
            "positive somewhere",
        ),
        (
            r#"{"name": "adam", "learning_rate": {"linear": {"init_value": 1, "end_value": -1, "transition_steps": 1}}}"#,
            "`end_value` is -1",
        ),
        (
            r#"{"name": "adam", "learning_rate": {"warmup_cosine": {"peak_value": 1, "warmup_steps": 9, "decay_steps": 9}}}"#,
            "`decay_steps`",
        ),
        (
            r#"{"name": "adam", "learning_rate": {"join": {"schedules": [1], "boundaries": [3]}}}"#,
            "one more than `boundaries`",
        ),
        (
            r#"{"name": "adam", "learning_rate": {"join": {"schedules": [], "boundaries": []}}}"#,
            "one more than `boundaries`",
        ),
        (r#"{"name": "adam", "learning_rate": {"schedule": {"table": []}}}"#, "positive somewhere"),
        (r#"{"name": "adam", "learning_rate": 1, "b1": 1}"#, "`b1` is 1, and has to be a number from 0 on and below 1"),
        (r#"{"name": "adam", "learning_rate": 1, "b1": "high"}"#, "`b1` is \"high\""),
        (r#"{"name": "adam", "learning_rate": 1, "nesterov": 1}"#, "true or false"),
        (r#"{"name": "adam", "learning_rate": 1, "momentum": 0.9}"#, "adam has no option `momentum`; it has: b1, b2"),
        (r#"{"name": "adam", "learning_rate": 1, "weight_decay_mask": "matrices"}"#, "no weight decay"),
        (r#"{"name": "adamw", "learning_rate": 1, "weight_decay_mask": "biases"}"#, "`weight_decay_mask`: "),
        (r#"{"name": "adamw", "learning_rate": 1, "weight_decay": -0.1}"#, "`weight_decay` is -0.1"),
        (r#"{"name": "adam", "learning_rate": 1, "clip": 0}"#, "`clip` is 0, and has to be a positive number"),
        (r#"{"name": "adam", "learning_rate": 1, "accumulate": 0}"#, "`accumulate` is 0"),
        (r#"{"name": "adam", "learning_rate": 1, "accumulate": -1}"#, "`accumulate`: "),
        (r#"{"name": "muon", "learning_rate": 1, "ns_steps": 1.5}"#, "a whole number"),
        (r#"{"name": "muon", "learning_rate": 1, "ns_steps": 9999999999}"#, "a whole number"),
    ];
    for (text, expected) in cases {
        let error = OptimizerConfig::from_json(text).expect_err(text).to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
    // A value that no file can contain.
    let config = OptimizerConfig::new(OptimizerName::Adam, f64::NAN);
    assert!(matches!(config.build::<grove_backend::Flex, Leaves<_>>(), Err(OptimError::Value { .. })));
}

on_each_backend!(same_as_written_out);
