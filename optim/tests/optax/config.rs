//! Optimizers from configuration files, including hostile ones.

use grove_backend::Flex;
use grove_optim::*;
use grove_tree::{Backend, all_close, eq};

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
    let check = |text: &str, expected: Leaves<B>| {
        let found = run(&built::<B>(text), &device);
        // With kernel fusion, rounding depends on which operations ran before.
        let is_same = match B::FUSES {
            true => all_close(&found, &expected, 1e-6, 1e-7),
            false => eq(&found, &expected),
        };
        assert!(is_same, "{text}");
    };
    let schedule = warmup_cosine_decay_schedule(0.0, 0.1, 2, 10, 0.01);
    let options = Adamw::default().weight_decay(0.3).b2(0.95).mask(matrices());
    check(
        r#"{"name": "adamw", "weight_decay": 0.3, "b2": 0.95, "weight_decay_mask": "matrices", "clip": 2,
            "learning_rate": {"warmup_cosine": {"peak_value": 0.1, "warmup_steps": 2, "decay_steps": 10, "end_value": 0.01}}}"#,
        run(&chain((clip_by_global_norm(2.0), adamw::<B>(schedule, options))), &device),
    );
    let options = Sgd { momentum: Some(0.9.into()), nesterov: true };
    let frozen = grove_tree::by_path("b") | grove_tree::by_path("d*");
    let expected = selective_transform(sgd::<B>(0.1, options), frozen);
    check(
        r#"{"name": "sgd", "learning_rate": 0.1, "momentum": 0.9, "nesterov": true, "frozen": ["b", "d*"]}"#,
        run(&expected, &device),
    );
    let options = Adafactor::default().min_dim_size_to_factor(2).weight_decay_rate(0.1);
    let mask = Some(grove_tree::by_path("a"));
    check(
        r#"{"name": "adafactor", "learning_rate": 0.1, "min_dim_size_to_factor": 2, "weight_decay_rate": 0.1, "weight_decay_mask": ["a"]}"#,
        run(&adafactor::<B>(0.1, Adafactor { weight_decay_mask: mask, ..options }), &device),
    );
}

#[test]
fn defaults_match_the_functions() {
    type B = Flex;
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
        other => panic!("{other:?}: write it here"),
    };
    let names = "adabelief adafactor adagrad adam adamw amsgrad lamb lars lion muon nadamw radam rmsprop sgd";
    for name in names.split(' ') {
        let config = OptimizerConfig::from_json(&format!(r#"{{"name": "{name}", "learning_rate": 0.1}}"#)).unwrap();
        assert!(eq(&run(&config.build().unwrap(), &device), &expected(config.name)), "{name}");
        let any = config.build_for_any_tree().unwrap();
        assert!(eq(&run(&any, &device), &expected(config.name)), "{name}");
        // A state belongs to either.
        let params = tree::<B>("params", &device);
        let (typed, any) = (config.build().unwrap().init(&params), any.init(&params));
        assert_eq!(typed.keys().collect::<Vec<_>>(), any.keys().collect::<Vec<_>>(), "{name}");
    }
}

#[test]
fn serializes_what_it_reads() {
    for text in [
        r#"{"name":"adam","learning_rate":0.1}"#,
        r#"{"name":"lion","learning_rate":{"linear":{"init_value":0.1,"end_value":0.0,"transition_steps":9}},"clip":1.5,"frozen":["c"],"apply_if_finite":3,"weight_decay_mask":["a","b.**"],"b1":0.8}"#,
        r#"{"name":"adamw","learning_rate":{"join":{"schedules":[0.1,{"cosine":{"init_value":0.1,"decay_steps":5,"alpha":0.0,"exponent":1.0}}],"boundaries":[3]}},"weight_decay_mask":"matrices"}"#,
        r#"{"name":"sgd","learning_rate":{"sgdr":[[0.0,0.1,2,9,0.01],[0.01,0.05,2,20,0.0]]},"momentum":0.9}"#,
    ] {
        let config = OptimizerConfig::from_json(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(serde_json::to_string(&config).unwrap(), text);
        assert_eq!(serde_json::from_str::<OptimizerConfig>(text).unwrap(), config);
    }
}

#[test]
fn reads_schedules_by_the_names_of_their_functions() {
    let cases = [
        ("3e-4", constant_schedule(3e-4)),
        (r#"{"constant": 0.1}"#, constant_schedule(0.1)),
        (
            r#"{"linear_schedule": {"init_value": 1.0, "end_value": 0.5, "transition_steps": 9}}"#,
            linear_schedule(1.0, 0.5, 9),
        ),
        (r#"{"cosine_decay_schedule": {"init_value": 1.0, "decay_steps": 9}}"#, cosine_decay_schedule(1.0, 9, 0.0)),
        (
            r#"{"exponential_decay": {"init_value": 1.0, "transition_steps": 9, "decay_rate": 0.5}}"#,
            exponential_decay(1.0, 9, 0.5),
        ),
        (r#"{"warmup_constant": {"peak_value": 1.0, "warmup_steps": 9}}"#, warmup_constant_schedule(0.0, 1.0, 9)),
        (
            r#"{"warmup_cosine": {"peak_value": 1.0, "warmup_steps": 3, "decay_steps": 9}}"#,
            warmup_cosine_decay_schedule(0.0, 1.0, 3, 9, 0.0),
        ),
        (
            r#"{"warmup_exponential": {"peak_value": 1, "warmup_steps": 3, "transition_steps": 9, "decay_rate": 0.5}}"#,
            warmup_exponential_decay_schedule(0.0, 1.0, 3, 9, 0.5),
        ),
        (r#"{"linear_onecycle": {"transition_steps": 9, "peak_value": 1.0}}"#, linear_onecycle_schedule(9, 1.0)),
        (
            r#"{"piecewise_constant": {"init_value": 1.0, "boundaries_and_scales": [[3, 0.1]]}}"#,
            piecewise_constant_schedule(1.0, [(3, 0.1)]),
        ),
        (r#"{"table": [1.0, 0.5]}"#, Schedule::table(2, |step| 1.0 / (step + 1) as f64)),
    ];
    for (text, expected) in cases {
        assert_eq!(serde_json::from_str::<Schedule>(text).unwrap(), expected, "{text}");
    }
    let closure = Schedule::from(|step: u64| step as f64);
    assert!(serde_json::to_string(&closure).unwrap_err().to_string().contains("cannot be serialized"));
}

#[test]
fn errors_name_the_field_and_the_valid_values() {
    let cases = [
        ("", "invalid configuration"),
        ("[]", "invalid type: sequence"),
        (r#"{"learning_rate": 1}"#, "missing field `name`"),
        (r#"{"name": 3, "learning_rate": 1}"#, "`name`: invalid type"),
        (r#"{"name": "adam"}"#, "missing field `learning_rate`"),
        (
            r#"{"name": "adamm", "learning_rate": 1}"#,
            "`name`: unknown variant `adamm`, expected one of `adabelief`, `adafactor`",
        ),
        (r#"{"name": "adam", "learning_rate": 0}"#, "`learning_rate` is 0; it must be positive"),
        (r#"{"name": "adam", "learning_rate": -1e-3}"#, "`learning_rate` is -0.001"),
        (r#"{"name": "adam", "learning_rate": 1e999}"#, "invalid configuration"),
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
        (r#"{"name": "adam", "learning_rate": {"table": []}}"#, "positive somewhere"),
        (
            r#"{"name": "adam", "learning_rate": 1, "b1": 1}"#,
            "`b1`: invalid value: floating point `1.0`, expected a number of at least 0 and below 1",
        ),
        (r#"{"name": "adam", "learning_rate": 1, "b1": "high"}"#, "`b1`: invalid type: string \"high\""),
        (
            r#"{"name": "adam", "learning_rate": 1, "nesterov": 1}"#,
            "`nesterov`: invalid type: integer `1`, expected a boolean",
        ),
        (
            r#"{"name": "adam", "learning_rate": 1, "momentum": 0.9}"#,
            "unknown field `momentum`, expected one of `b1`, `b2`",
        ),
        (
            r#"{"name": "adam", "learning_rate": 1, "weight_decay_mask": "matrices"}"#,
            "unknown field `weight_decay_mask`",
        ),
        (
            r#"{"name": "adamw", "learning_rate": 1, "weight_decay_mask": "biases"}"#,
            "`weight_decay_mask`: \"biases\" selects no parameters; expected `all`, `matrices` or a list",
        ),
        (
            r#"{"name": "adamw", "learning_rate": 1, "weight_decay": -0.1}"#,
            "`weight_decay`: invalid value: floating point `-0.1`, expected a number of at least 0",
        ),
        (r#"{"name": "adam", "learning_rate": 1, "clip": 0}"#, "`clip` is 0; it must be a positive number"),
        (r#"{"name": "adam", "learning_rate": 1, "apply_if_finite": -1}"#, "`apply_if_finite`: "),
        (r#"{"name": "muon", "learning_rate": 1, "ns_steps": 1.5}"#, "`ns_steps`: invalid type: floating point"),
        (r#"{"name": "muon", "learning_rate": 1, "ns_steps": 9999999999}"#, "a whole number from 1 to 100"),
    ];
    for (text, expected) in cases {
        let built = OptimizerConfig::from_json(text).and_then(|config| config.build::<Flex, Leaves<_>>());
        let error = built.err().unwrap_or_else(|| panic!("{text} is valid")).to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
    // NaN, which no JSON file can contain.
    let config = OptimizerConfig::new(OptimizerName::Adam, f64::NAN);
    assert!(matches!(config.build::<Flex, Leaves<_>>(), Err(OptimError::Value { .. })));
}

#[test]
fn patterns_that_match_no_parameter_are_refused() {
    let params = tree::<Flex>("params", &Default::default());
    let check = |fields: &str| {
        let text = format!(r#"{{"name": "adamw", "learning_rate": 1, {fields}}}"#);
        OptimizerConfig::from_json(&text).expect("a configuration").check_patterns(&params)
    };
    assert_eq!(check(r#""frozen": ["**"], "weight_decay_mask": ["*"]"#), Ok(()));
    assert_eq!(check(r#""weight_decay_mask": "matrices""#), Ok(()));
    for field in ["frozen", "weight_decay_mask"] {
        let error = check(&format!(r#""{field}": ["**", "nowhere"]"#));
        assert!(
            matches!(&error, Err(OptimError::UnmatchedPattern { pattern, .. }) if pattern == "nowhere"),
            "{error:?}"
        );
    }
}

on_each_backend!(same_as_written_out);
