//! Tests that the programs of this crate work, and that they are about as short as in Equinox and PyTorch.

use grove::prelude::*;
use grove_facade_tests::gated_mlp::GatedMlp;

/// Counts lines without imports, comments and blank lines.
fn lines(program: &str) -> usize {
    let mut in_import = false;
    let counts = |line: &&str| {
        let imports = in_import || line.starts_with("use ");
        in_import = imports && !line.ends_with(';');
        !imports && !line.is_empty() && !line.starts_with("//")
    };
    program.lines().map(str::trim).filter(counts).count()
}

/// The same programs in Equinox have 23, 5, 74, 11, 21 and 18 lines.
#[test]
fn programs_are_about_as_short_as_in_equinox() {
    let programs = [
        ("gated MLP", include_str!("../src/gated_mlp.rs"), 23),
        ("own transformation", include_str!("../src/own_transformation.rs"), 5),
        ("own decoder", include_str!("../src/own_decoder.rs"), 74),
        ("partial fine-tune", include_str!("../src/partial_finetune.rs"), 11),
        ("own names", include_str!("../src/own_names.rs"), 21),
        ("ensemble", include_str!("../src/ensemble.rs"), 18),
    ];
    for (name, program, equinox) in programs {
        assert!(5 * lines(program) <= 6 * equinox, "{name} has {} lines, but {equinox} in Equinox", lines(program));
    }
}

/// Counts lines of code in Rust or Python, without imports, comments, blank lines and lines of brackets only.
fn lines_of_code(program: &str) -> usize {
    let mut in_import = false;
    let counts = |line: &&str| {
        let imports = in_import || line.starts_with("use ") || line.starts_with("import ") || line.starts_with("from ");
        in_import = (in_import || line.starts_with("use ")) && !line.ends_with(';');
        let comment = ["//", "# ", "\"\"\""].iter().any(|start| line.starts_with(start));
        !imports && !comment && line.contains(char::is_alphanumeric)
    };
    program.lines().map(str::trim).filter(counts).count()
}

#[test]
fn programs_are_as_short_as_in_python() {
    macro_rules! program {
        ($name:literal) => {
            ($name, [include_str!(concat!("../src/", $name, ".rs")), include_str!(concat!("../python/", $name, ".py"))])
        };
    }
    let programs = [
        program!("checkpoint"),
        program!("encoder"),
        program!("evaluate"),
        program!("forecast"),
        program!("lion"),
        program!("lora"),
        program!("mnist"),
        program!("similarity"),
        program!("text_classifier"),
    ];
    for (name, program) in programs {
        let [rust, python] = program.map(lines_of_code);
        assert!(rust <= python, "{name} has {rust} lines, but {python} in Python");
    }
}

#[test]
fn the_page_of_models_has_every_model_type() {
    let page = include_str!("../../../docs/models.md");
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| ") && line.contains("](families/")).collect();
    let cells = rows.iter().map(|row| row.split('|').nth(2).expect("a column of model types"));
    let mut listed: Vec<&str> = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    let mut known: Vec<&str> = grove::models::ModelKind::model_types().map(|(name, _)| name).collect();
    listed.sort_unstable();
    known.sort_unstable();
    assert_eq!(listed, known);
}

#[test]
fn arrays_infer_rank_and_kind() {
    let device: Device<Flex> = Default::default();
    let floats = Array::new(Tensor::<Flex, 2>::ones([2, 3], &device));
    let ints = Array::new(Tensor::<Flex, 1, Int>::from_ints([1, 2], &device));
    assert_eq!((floats.shape(), floats.dtype().is_float()), ([2, 3], true));
    assert_eq!((ints.shape(), ints.dtype().is_int()), ([2], true));
}

#[test]
fn a_closure_is_a_schedule() {
    let device = Default::default();
    let optimizer = grove::optim::sgd(|step: u64| if step < 2 { 0.5 } else { 0.25 }, Default::default());
    let mut x = Array::<Flex, 1>::new(Tensor::from_floats([1.0], &device));
    let mut state = optimizer.init(&x);
    let mut seen = Vec::new();
    for _ in 0..3 {
        let grads = x.clone();
        (x, state) = optimizer.step(grads, state, x);
        seen.push(x.val().into_scalar());
    }
    assert_eq!(seen, [0.5, 0.25, 0.1875]);
}

fn train<B: Backend, M: Trainable<B>>(mut model: M, batch: &M::Batch, steps: u32) -> (M, Vec<f32>) {
    let optimizer = adamw(1e-2, Adamw::default().weight_decay(0.1));
    let step = train_step(M::loss, &optimizer, StepOptions::default());
    let mut state = optimizer.init(&model);
    let mut losses = Vec::new();
    for i in 0..steps {
        let metrics;
        (model, state, metrics) = step(model, state, batch, Key::new(0).fold_in(i));
        losses.push(metrics.loss.val().into_scalar().elem());
    }
    (model, losses)
}

#[test]
fn a_generic_trainer_has_one_bound() {
    let device = Default::default();
    let model = GatedMlp::<Flex>::new(4, 16, &Init::new(Key::new(0), &device));
    let x = Init::<Flex>::new(Key::new(1), &device).normal([32, 4], 1.0).val();
    let (model, losses) = train(model, &x, 60);
    assert!(losses[59] < losses[0] / 4.0, "{losses:?}");
    assert_eq!(
        tree::structure::<Flex, _>(&model).to_string(),
        "GatedMlp { gate: Linear { weight: *, bias: *, low_rank: None }, up: Linear { weight: *, bias: *, low_rank: \
         None }, down: Linear { weight: *, bias: *, low_rank: None }, residual: true }"
    );
}

mod ensemble {
    use grove::prelude::*;
    use grove_facade_tests::ensemble::*;

    #[test]
    fn members_agree_on_the_data_and_differ_beyond() {
        let device = Default::default();
        let x = Tensor::<Flex, 1>::from_floats([-1.0, -0.5, 0.0, 0.5, 1.0], &device).reshape([5, 1]);
        let y = x.clone().square();
        let mut ensemble = members::<Flex>(Key::new(0), 5, &device);
        let spread =
            |ensemble: &Ensemble<Flex>, x: Tensor<Flex, 2>| predict(ensemble, &x).var(0).sqrt().max().into_scalar();
        for _ in 0..2000 {
            ensemble = step(ensemble, &x, &y, 0.1);
        }
        let mean = predict(&ensemble, &x).mean_dim(0).squeeze_dim::<2>(0);
        let error = (mean - y).abs().max().into_scalar();
        assert!(error < 0.05, "{error}");
        let (near, far) = (spread(&ensemble, x.clone()), spread(&ensemble, x * 8.0));
        assert!(far > 4.0 * near, "{near} on the data, {far} beyond");
    }

    #[test]
    fn a_step_on_all_leaves_matches_steps_on_each() {
        let device = Default::default();
        let (x, y) = (Tensor::<Flex, 2>::ones([3, 1], &device), Tensor::<Flex, 2>::zeros([3, 1], &device));
        let ensemble = members::<Flex>(Key::new(1), 3, &device);
        let alone: Ensemble<Flex> =
            ensemble.iter().flat_map(|member| step(vec![member.clone()], &x, &y, 0.1)).collect();
        assert!(tree::all_close(&step(ensemble, &x, &y, 0.1), &alone, 1e-6, 1e-7));
    }
}

mod gated_mlp {
    use grove::prelude::*;
    use grove_facade_tests::gated_mlp::*;

    #[test]
    fn computes_the_formula() {
        let device = Default::default();
        let linear =
            |weight: [[f32; 1]; 1]| Linear::from_arrays(Array::new(Tensor::from_floats(weight, &device)), None);
        let (gate, up, down) = (linear([[1.0]]), linear([[2.0]]), linear([[3.0]]));
        let model = GatedMlp::<Flex> { gate, up, down, residual: true };
        let x = Tensor::from_floats([[1.0], [-2.0]], &device);
        // x + 6 x² / (1 + exp(-x))
        model.forward(x).into_data().assert_approx_eq::<f32>(
            &[[1.0 + 6.0 * 0.731_058_6], [-2.0 + 24.0 * 0.119_202_92]].into(),
            grove::tensor::Tolerance::absolute(1e-5),
        );
    }

    #[test]
    fn gradients_are_a_gated_mlp() {
        let model = GatedMlp::<Flex>::new(4, 16, &Init::new(Key::new(0), &Default::default()));
        let (_, grads) = value_and_grad(&model, |model| {
            let y = model.forward(Tensor::ones([2, 4], &Default::default()));
            (y.clone() * y).sum()
        });
        assert_eq!((grads.gate.weight.shape(), grads.down.weight.shape()), ([4, 16], [16, 4]));
        assert_eq!(tree::count_params(&grads), 2 * (4 * 16 + 16) + 16 * 4 + 4);
    }
}

mod own_decoder {
    use grove::models::DecodeCache;
    use grove::prelude::*;
    use grove_facade_tests::own_decoder::*;

    #[test]
    fn learns_a_text_and_continues_it() {
        let text = "the old tree by the long wall";
        let bytes: Vec<u32> = text.bytes().map(u32::from).collect();
        let ids = Tensor::<Flex, 1, Int>::from_ints(
            &bytes.iter().map(|&b| b as i32).collect::<Vec<_>>()[..],
            &Default::default(),
        );
        let model = decoder::<Flex>(2, &Init::new(Key::new(0), &Default::default()));
        let model = train(model, &ids.unsqueeze(), 150);
        let options = GenerateOptions { max_new_tokens: text.len() - 9, ..Default::default() };
        let written = model.generate(&[bytes[..9].to_vec()], &options).expect("generated");
        assert_eq!(written[0].ids, bytes[9..]);
        // A compiled model has a cache of fixed size. The second prompt is padded at the start.
        let prompts = [bytes[..9].to_vec(), bytes[4..9].to_vec()];
        let written = model.generate(&prompts, &options).expect("generated");
        let jitted = model.jitted().generate(&prompts, &options).expect("generated");
        assert_eq!(jitted[0].ids, bytes[9..]);
        assert_eq!(jitted[1].ids, written[1].ids);
    }

    #[test]
    #[should_panic(expected = "a cache of fixed size has the number of its positions as an array")]
    fn a_fixed_cache_does_not_know_its_length() {
        let model = decoder::<Flex>(1, &Init::new(Key::new(0), &Default::default()));
        let cache = model.new_cache(8).fixed(8, &Default::default());
        cache.seen();
    }
}

mod own_names {
    use grove::prelude::*;
    use grove::weights::TensorFiles;
    use grove_facade_tests::own_names::*;

    #[test]
    fn saves_and_loads_by_other_names() {
        let file = std::env::temp_dir().join(format!("grove-facade-{}.safetensors", std::process::id()));
        let model = probe(&Init::<Flex>::new(Key::new(3), &Default::default()));
        save(&model, &file).expect("saved");
        let tensors = TensorFiles::open(&file).expect("a file");
        let found: Vec<&str> = tensors.names().collect();
        let expected = ["encoder.0.bias", "encoder.0.weight", "encoder.1.bias", "encoder.1.weight", "ln.gamma"];
        assert_eq!(found, expected);
        let weight = tensors.tensor("encoder.1.weight").expect("there").iter::<f32>().collect::<Vec<_>>();
        let transposed = model.layers[1].weight.val().transpose().into_data().iter::<f32>().collect::<Vec<_>>();
        assert_eq!(weight, transposed);
        assert!(tree::eq(&open::<Flex>(&file, &Default::default()).expect("loaded"), &model));
        std::fs::remove_file(file).expect("removed");
    }
}

mod own_transformation {
    use grove::optim::scale;
    use grove::prelude::*;
    use grove_facade_tests::own_transformation::*;

    #[test]
    fn scales_signs_by_the_mean_size() {
        let device = Default::default();
        let params = Array::<Flex, 1>::new(Tensor::from_floats([1.0, 2.0, 3.0], &device));
        let grads = Array::new(Tensor::from_floats([3.0, -5.0, 1.0], &device));
        let optimizer = chain((scale_by_sign(), scale(-0.1)));
        let (params, _) = optimizer.step(grads, optimizer.init(&params), params);
        params.val().into_data().assert_approx_eq::<f32>(&[0.7f32, 2.3, 2.7].into(), Default::default());
    }
}

mod partial_finetune {
    use grove::prelude::*;
    use grove_facade_tests::partial_finetune::*;

    #[test]
    fn trains_the_last_block_and_no_other() {
        let config =
            Gpt2Config { n_embd: 8, n_layer: 2, n_head: 2, vocab_size: 16, n_positions: 8, ..Default::default() };
        let model = Gpt2::<Flex>::init(&config, Key::new(0), &Default::default()).expect("a valid configuration");
        let ids = || Tensor::<Flex, 2, Int>::from_ints([[1, 2, 3, 1, 2, 3, 1, 2]], &Default::default());
        let loss = |model: &Gpt2<Flex>| model.loss(ids(), ids(), None).into_scalar();
        let trained = finetune(model.clone(), &vec![ids(); 40]);
        assert!(loss(&trained) < 0.95 * loss(&model), "{} to {}", loss(&model), loss(&trained));
        assert!(tree::eq(&trained.h[0], &model.h[0]) && tree::eq(&trained.wte, &model.wte));
        assert!(!tree::eq(&trained.h[1], &model.h[1]) && !tree::eq(&trained.ln_f, &model.ln_f));
    }
}

mod digits {
    use grove::prelude::*;
    use grove_facade_tests::{checkpoint, evaluate::evaluate, mnist};

    const DIGITS: &str = "../../models/assets/digits";

    #[test]
    fn trains_evaluates_and_reloads_a_model() {
        let model = mnist::train(DIGITS, 5).expect("trained");
        let accuracy = mnist::evaluate(&model, DIGITS).expect("digits");
        assert!(accuracy > 0.85, "{accuracy}");
        let held_out = Examples::from_arrays(mnist::read(DIGITS, "t10k").expect("digits"), 100).expect("digits");
        let by_batch = evaluate(&model, &held_out).expect("loaded");
        assert!((by_batch - f64::from(accuracy)).abs() < 1e-6, "{by_batch} in batches, {accuracy} in one");

        let file = std::env::temp_dir().join(format!("grove-facade-digits-{}.safetensors", std::process::id()));
        checkpoint::save(&model, &file).expect("saved");
        assert!(tree::eq(&checkpoint::load(64, &file).expect("loaded"), &model));
        std::fs::remove_file(file).expect("removed");
    }
}

mod forecast {
    use grove::prelude::*;
    use grove_facade_tests::forecast::train;

    #[test]
    fn continues_a_sine() {
        let wave = (Tensor::<Flex, 1, Int>::arange(0..121, &Default::default()).float() / 4.0).sin();
        let model = train(wave.clone().narrow(0, 0, 100), 20, 150);
        let predicted = model.forward(wave.clone().narrow(0, 100, 20).reshape([1, 20, 1])).into_scalar();
        let expected = wave.narrow(0, 120, 1).into_scalar();
        assert!((predicted - expected).abs() < 0.2, "{predicted} is not {expected}");
    }
}

mod lion {
    use grove::optim::{ScaleByLion, scale_by_lion};
    use grove::prelude::*;
    use grove_facade_tests::lion;

    #[test]
    fn updates_equal_those_of_the_library() {
        let device = Default::default();
        let params = Linear::<Flex>::new(3, 2, Key::new(0));
        let (own, library) =
            (lion::scale_by_lion::<Flex, Linear<Flex>>(0.9, 0.99), scale_by_lion::<Flex>(ScaleByLion::default()));
        let (mut state, mut expected_state) = (own.init(&params), library.init(&params));
        for i in 0..3 {
            let grads = Linear::<Flex>::new(3, 2, Init::new(Key::new(1).fold_in(i), &device));
            let (updates, expected);
            (updates, state) = own.update(grads.clone(), state, &params);
            (expected, expected_state) = library.update(grads, expected_state, &params);
            assert!(tree::eq(&updates, &expected));
        }
    }
}

mod language {
    use grove::prelude::*;
    use grove_facade_tests::{encoder::encoder, lora, similarity::similarity, text_classifier::finetune};

    const GPT2: &str = "../../models/assets/gpt2-austen";
    const BERT: &str = "../../models/assets/bert-austen";

    #[test]
    fn a_classifier_trains_its_head_only() {
        let file = std::env::temp_dir().join(format!("grove-facade-texts-{}.csv", std::process::id()));
        let rows = (0..40).map(|i| if i % 2 == 0 { "I am so glad!,speech\n" } else { "She went home.,narration\n" });
        std::fs::write(&file, format!("text,label\n{}", rows.collect::<String>())).expect("written");
        let (model, accuracy) = finetune(GPT2, file.to_str().expect("a path"), 10).expect("trained");
        std::fs::remove_file(file).expect("removed");
        assert_eq!((&model.labels[..], accuracy), (&["narration".to_owned(), "speech".to_owned()][..], 1.0));
        let published = Gpt2::<Flex>::from_pretrained(GPT2, &Default::default()).expect("ships with grove");
        assert!(tree::eq(&model.decoder.h, &published.h) && tree::eq(&model.decoder.wte, &published.wte));
    }

    #[test]
    fn low_rank_updates_change_their_weights_only() {
        let ids = Array::new(Tensor::<Flex, 2, Int>::from_ints([[5, 17, 400, 5, 17, 400]], &Default::default()));
        let published = Gpt2::<Flex>::from_pretrained(GPT2, &Default::default()).expect("ships with grove");
        let loss = |model: &Gpt2<Flex>| model.loss(ids.val(), ids.val(), None).into_scalar();
        let trained = lora::finetune(GPT2, &vec![ids.clone(); 5]).expect("trained");
        assert!(loss(&trained) < loss(&published), "{} to {}", loss(&published), loss(&trained));
        assert!(tree::eq(&trained.wte, &published.wte) && tree::eq(&trained.h[0].mlp, &published.h[0].mlp));
    }

    #[test]
    fn loads_the_encoder_of_a_saved_classifier() {
        let labels = ["a", "b"].map(String::from).to_vec();
        let model =
            BertForSequenceClassification::<Flex>::with_new_head(BERT, labels, Key::new(0), &Default::default())
                .expect("ships with grove");
        let directory = std::env::temp_dir().join(format!("grove-facade-bert-{}", std::process::id()));
        model.save_pretrained(&directory).expect("saved");
        let loaded = encoder(directory.to_str().expect("a path")).expect("loaded");
        std::fs::remove_dir_all(directory).expect("removed");
        assert!(tree::eq(&loaded.encoder, &model.bert.encoder) && tree::eq(&loaded.embeddings, &model.bert.embeddings));
    }

    #[test]
    fn a_sentence_is_most_similar_to_itself() {
        let [same, other] = [["She was glad.", "She was glad."], ["She was glad.", "The carriage stopped."]]
            .map(|sentences| similarity(BERT, sentences).expect("embedded"));
        assert!((same - 1.0).abs() < 1e-5 && other < same, "{same} {other}");
    }
}
