//! Tests of `CheckpointManager` through its public interface: round trips, removal of old checkpoints, and damage.

use std::{
    fs,
    path::{Path, PathBuf},
};

use burn::tensor::{Bool, DType, FloatDType, Int, Tensor};
use grove_backend::{Backend, Flex};
use grove_files::FileError;
use grove_train::{CheckpointManager, Restored, RunProgress, RunSettings, TrainError, data::Position};
use grove_tree::{Array, Tree, cast, eq, leaves};
use proptest::prelude::*;
use tempfile::TempDir;

#[derive(Tree, Clone, Debug)]
struct State<B: Backend> {
    weight: Array<B, 2>,
    half: Array<B, 1>,
    frozen: Array<B, 1>,
    count: Array<B, 1, Int>,
    mask: Array<B, 1, Bool>,
    tail: Option<Vec<Array<B, 1>>>,
}

fn state(value: f32) -> State<Flex> {
    let device = Default::default();
    State {
        weight: Array::new(Tensor::full([5, 7], value, &device)),
        half: Array::new(Tensor::<Flex, 1>::from_floats([value, -1.5, 65_504.0], &device).cast(DType::F16)),
        frozen: Array::absent([1_000_000]),
        count: Array::new(Tensor::from_ints([i32::MAX, -3], &device)),
        mask: Array::new(Tensor::from_data([true, false, true], &device)),
        tail: Some(vec![Array::new(Tensor::from_floats([f32::NAN, f32::INFINITY, f32::MIN_POSITIVE], &device))]),
    }
}

fn progressed(step: u64) -> RunProgress {
    RunProgress {
        step,
        position: Position { epoch: 3, batch: step },
        key: [u32::MAX, 7],
        seconds: 12.25,
        best: Some((step - 1, 0.1 + 0.2)),
        held_out_loss: Some(0.1 + 0.2),
        stale: 2,
        unrecorded: [("train/loss".to_owned(), (1.0 / 3.0, 4)), ("grad_norm".to_owned(), (f64::MAX, 1))].into(),
        skipped: 3,
        skipped_in_a_row: 1,
        settings: Some(RunSettings::new().with("seed", 0).with("labels", "é\u{7}".repeat(200))),
    }
}

fn directory() -> TempDir {
    TempDir::new().expect("a directory")
}

fn open(directory: &TempDir, keep: usize) -> CheckpointManager {
    CheckpointManager::open(directory.path().join("checkpoints"), keep).expect("opened")
}

fn load(checkpoints: &CheckpointManager) -> Result<Option<Restored<State<Flex>>>, TrainError> {
    checkpoints.load(&state(0.0), &Default::default())
}

fn steps(checkpoints: &CheckpointManager) -> Vec<u64> {
    checkpoints.list().expect("listed").into_iter().map(|(step, _)| step).collect()
}

/// Creates checkpoints of steps 1 and 2; returns the manager and the path of the second.
fn two(directory: &TempDir) -> (CheckpointManager, PathBuf) {
    let checkpoints = open(directory, 5);
    checkpoints.save(&state(1.0), &progressed(1)).expect("saved");
    let path = checkpoints.save(&state(2.0), &progressed(2)).expect("saved");
    (checkpoints, path)
}

/// Returns the bytes of every leaf, because NaN does not equal itself.
fn bytes(state: &State<Flex>) -> Vec<Option<Vec<u8>>> {
    leaves(state).into_iter().map(|(_, leaf)| Some(leaf.into_data()?.as_bytes().to_vec())).collect()
}

#[test]
fn everything_comes_back() {
    let directory = directory();
    let checkpoints = open(&directory, 3);
    assert!(load(&checkpoints).expect("no error").is_none(), "there is none");
    let saved = state(2.5);
    let path = checkpoints.save(&saved, &progressed(120)).expect("saved");
    assert!(path.ends_with("checkpoints/step-0000000120"), "{}", path.display());
    let restored = load(&checkpoints).expect("read").expect("one");
    assert_eq!(bytes(&restored.state), bytes(&saved));
    assert_eq!(restored.state.half.val().dtype(), DType::F16);
    assert!(!restored.state.frozen.is_present(), "what is absent stays so, and takes no room");
    assert_eq!(restored.progressed, progressed(120), "to the last bit");
    assert_eq!(restored.path, path);
    assert!(restored.skipped.is_empty(), "{:?}", restored.skipped);
}

#[test]
fn the_same_state_is_the_same_file() {
    let directory = directory();
    let (checkpoints, path) = two(&directory);
    let bytes = |path: &Path| fs::read(path.join("state.safetensors")).expect("read");
    let other = checkpoints.save(&state(2.0), &progressed(3)).expect("saved");
    assert_eq!(bytes(&path), bytes(&other));
}

#[test]
fn the_newest_are_kept() {
    let directory = directory();
    let checkpoints = open(&directory, 3);
    for step in [5, 90, 100, 1000, 12_345_678_901] {
        checkpoints.save(&state(step as f32), &progressed(step)).expect("saved");
    }
    assert_eq!(steps(&checkpoints), [12_345_678_901, 1000, 100]);
    assert_eq!(load(&checkpoints).expect("read").expect("one").progressed.step, 12_345_678_901);
    drop(checkpoints);
    let least = open(&directory, 0);
    least.save(&state(1.0), &progressed(12_345_678_902)).expect("saved");
    assert_eq!(steps(&least), [12_345_678_902], "one at least");
}

#[test]
fn rollback_removes_later_positions() {
    let directory = directory();
    let (checkpoints, path) = two(&directory);
    checkpoints.save(&state(9.0), &progressed(9)).expect("saved");
    fs::write(directory.path().join("checkpoints/step-0000000009/state.safetensors"), "").expect("damaged");
    fs::write(path.join("checkpoint.json"), "").expect("damaged");
    drop(checkpoints);
    let one = open(&directory, 1);
    assert_eq!(load(&one).expect("read").expect("one").progressed.step, 1);
    // A run resumed from step 1 may write a checkpoint that is older than the damaged one.
    one.save(&state(3.0), &progressed(3)).expect("saved");
    assert_eq!(steps(&one), [3], "what was written is kept, what was damaged is not");
    assert_eq!(bytes(&load(&one).expect("read").expect("one").state), bytes(&state(3.0)));
}

#[test]
fn a_step_can_be_written_again() {
    let directory = directory();
    let (checkpoints, path) = two(&directory);
    fs::write(path.join("state.safetensors"), "").expect("damaged");
    checkpoints.save(&state(4.0), &progressed(2)).expect("saved");
    assert_eq!(steps(&checkpoints), [2, 1]);
    let restored = load(&checkpoints).expect("read").expect("one");
    assert_eq!(bytes(&restored.state), bytes(&state(4.0)));
}

#[test]
fn a_damaged_checkpoint_is_skipped_with_the_reason() {
    type Damage = fn(&Path, &Path);
    let cases: [(&str, &str, Damage); 8] = [
        ("truncated", "state.safetensors does not have the checksum", |file, _| {
            let bytes = fs::read(file).expect("read");
            fs::write(file, &bytes[..bytes.len() / 2]).expect("written");
        }),
        ("one bit flipped", "state.safetensors does not have the checksum", |file, _| {
            let mut bytes = fs::read(file).expect("read");
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
            fs::write(file, bytes).expect("written");
        }),
        ("no state", "state.safetensors: No such file", |file, _| fs::remove_file(file).expect("removed")),
        ("no manifest", "checkpoint.json: No such file", |_, file| fs::remove_file(file).expect("removed")),
        ("an empty manifest", "checkpoint.json: EOF", |_, file| fs::write(file, "").expect("written")),
        ("zeros", "checkpoint.json: expected value", |_, file| fs::write(file, [0; 300]).expect("written")),
        ("no text", "checkpoint.json: stream did not contain valid UTF-8", |_, file| {
            fs::write(file, [0xff; 300]).expect("written");
        }),
        ("a digit of the manifest", "checkpoint.json: it does not have the checksum", |_, file| {
            let text = fs::read_to_string(file).expect("read");
            fs::write(file, text.replace("\"step\": 2", "\"step\": 6")).expect("written");
        }),
    ];
    for (name, reason, damage) in cases {
        let directory = directory();
        let (checkpoints, path) = two(&directory);
        damage(&path.join("state.safetensors"), &path.join("checkpoint.json"));
        let restored = load(&checkpoints).expect(name).expect("the older one");
        assert_eq!((restored.progressed.step, bytes(&restored.state)), (1, bytes(&state(1.0))), "{name}");
        let [skipped] = &restored.skipped[..] else { panic!("{name}: {:?}", restored.skipped) };
        assert!(skipped.contains("step-0000000002 is damaged") && skipped.contains(reason), "{name}: {skipped}");
    }
}

#[test]
fn a_manifest_of_other_arrays_does_not_pass() {
    let directory = directory();
    let (checkpoints, path) = two(&directory);
    let first = path.with_file_name("step-0000000001");
    fs::copy(first.join("state.safetensors"), path.join("state.safetensors")).expect("copied");
    assert_eq!(load(&checkpoints).expect("read").expect("one").progressed.step, 1);
}

#[test]
fn reports_if_all_checkpoints_are_damaged() {
    let directory = directory();
    let (checkpoints, path) = two(&directory);
    for step in [1, 2] {
        fs::write(path.with_file_name(format!("step-{step:010}")).join("checkpoint.json"), "{}").expect("written");
    }
    let error = load(&checkpoints).expect_err("nothing is whole");
    assert!(matches!(&error, TrainError::AllDamaged { .. }), "{error:?}");
    let message = error.to_string();
    for part in [&*directory.path().to_string_lossy(), "step-0000000002", "missing field", "remove them to start again"]
    {
        assert!(message.contains(part), "{part}: {message}");
    }
}

#[test]
fn a_newer_format_is_not_skipped() {
    let directory = directory();
    let (checkpoints, path) = two(&directory);
    fs::write(path.join("checkpoint.json"), r#"{"format": 2, "shards": 12}"#).expect("written");
    let error = load(&checkpoints).expect_err("it is newer");
    let TrainError::NewerCheckpoint { path: named, found: 2, known: 1 } = &error else { panic!("{error:?}") };
    assert_eq!(named, &path);
    let expected = "has format 2; this version of grove reads format 1: update grove, or train in another directory";
    assert!(error.to_string().contains(expected), "{error}");
}

#[test]
fn the_checkpoint_of_another_model_is_refused() {
    let device = Default::default();
    let directory = directory();
    let (checkpoints, path) = two(&directory);
    let refused = |like: State<Flex>, parts: &[&str]| {
        let error = checkpoints.load(&like, &device).expect_err("it does not fit");
        let TrainError::OtherModel { path: named, reason } = &error else { panic!("{error:?}") };
        assert_eq!(named, &path);
        assert!(parts.iter().all(|part| reason.contains(part)), "{parts:?}: {reason}");
    };
    refused(
        State { weight: Array::new(Tensor::zeros([5, 8], &device)), ..state(0.0) },
        &["weight", "[5, 7]", "[5, 8]"],
    );
    refused(State { tail: None, ..state(0.0) }, &["tail.0"]);
    let longer = vec![Array::new(Tensor::zeros([3], &device)), Array::new(Tensor::zeros([1], &device))];
    refused(State { tail: Some(longer), ..state(0.0) }, &["tail.1"]);
    refused(State { count: Array::absent([2]), ..state(0.0) }, &["count"]);
    refused(State { frozen: Array::new(Tensor::zeros([4], &device)), ..state(0.0) }, &["frozen"]);
    refused(cast(state(0.0), FloatDType::F16), &["`tail.0` is f32 there, and f16 here"]);
    assert!(!eq(&state(1.0), &state(2.0)), "the states of this test differ");
}

#[test]
fn the_next_writer_removes_partial_checkpoints() {
    let directory = directory();
    let (checkpoints, path) = two(&directory);
    let parent = path.parent().expect("a parent");
    fs::create_dir(parent.join(".grove-abc.writing")).expect("made");
    fs::write(parent.join(".grove-abc.writing/state.safetensors"), "half").expect("written");
    fs::write(parent.join(".grove-def.tmp"), "half").expect("written");
    fs::write(parent.join("notes.txt"), "mine").expect("written");
    assert_eq!(steps(&checkpoints), [2, 1], "it is not a checkpoint");
    let names = || {
        let mut names: Vec<_> =
            fs::read_dir(parent).expect("listed").map(|item| item.expect("an item").file_name()).collect();
        names.sort();
        names
    };
    // Read while another manager may still be writing.
    let reader = open(&directory, 2);
    assert_eq!(load(&reader).expect("read").expect("one").progressed.step, 2);
    assert_eq!(names().len(), 5, "reading changes nothing");
    let error = reader.save(&state(3.0), &progressed(3)).expect_err("another one is writing");
    assert!(matches!(&error, TrainError::RunLocked { directory: run, .. } if run == directory.path()), "{error:?}");
    assert_eq!(names().len(), 5, "{error}");
    drop(checkpoints);
    reader.save(&state(3.0), &progressed(3)).expect("nobody else writes any more");
    assert_eq!(names(), ["notes.txt", "step-0000000002", "step-0000000003"]);
}

/// A file that exists but cannot be read: a circular link, or a directory in its place. Not even root can read these.
#[cfg(unix)]
#[test]
fn an_unreadable_checkpoint_is_not_damaged() {
    let link: fn(&Path) = |file| std::os::unix::fs::symlink(file, file).expect("linked");
    let other: fn(&Path) = |file| fs::create_dir(file).expect("made");
    for file in ["state.safetensors", "checkpoint.json"] {
        for (name, obstruct) in [("a circle", link), ("a directory", other)] {
            let directory = directory();
            let (checkpoints, path) = two(&directory);
            let (file, aside) = (path.join(file), directory.path().join("aside"));
            fs::rename(&file, &aside).expect("moved");
            obstruct(&file);
            let error = load(&checkpoints).expect_err("the newest may be good");
            let TrainError::Io(FileError::System { path: named, .. }) = &error else { panic!("{name}: {error:?}") };
            assert_eq!(named, &file, "{name}");
            assert!(error.to_string().starts_with(&format!("cannot read {}: ", file.display())), "{error}");
            assert_eq!(steps(&checkpoints), [2, 1], "nothing is removed");
            // Readable again, the checkpoint is the newest.
            let _ = fs::remove_file(&file);
            let _ = fs::remove_dir(&file);
            fs::rename(&aside, &file).expect("moved back");
            assert_eq!(load(&checkpoints).expect("read").expect("one").progressed.step, 2);
        }
    }
}

#[test]
fn a_file_in_the_way_is_named() {
    let directory = directory();
    let way = directory.path().join("checkpoints");
    let checkpoints = open(&directory, 2);
    fs::write(&way, "a file").expect("written");
    for error in [
        checkpoints.save(&state(1.0), &progressed(1)).expect_err("a file is in the way"),
        checkpoints.list().expect_err("a file is in the way"),
        CheckpointManager::open(&way, 2).expect_err("a file is in the way"),
    ] {
        assert!(matches!(&error, TrainError::Io(FileError::System { path, .. }) if *path == way), "{error:?}");
        assert!(error.to_string().contains(&*way.to_string_lossy()), "{error}");
    }
}

#[cfg(unix)]
#[test]
fn checkpoints_are_for_others_too() {
    use std::os::unix::fs::PermissionsExt;
    let directory = directory();
    let (_, path) = two(&directory);
    let plain = directory.path().join("plain");
    fs::create_dir(&plain).expect("made");
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode();
    assert_eq!(mode(&path), mode(&plain), "as readable as any directory");
}

#[cfg(unix)]
#[test]
fn a_directory_that_may_not_be_written_is_named() {
    use std::os::unix::fs::PermissionsExt;
    let directory = directory();
    let (checkpoints, path) = two(&directory);
    let parent = path.parent().expect("a parent");
    let allow = |mode| fs::set_permissions(parent, fs::Permissions::from_mode(mode)).expect("changed");
    allow(0o555);
    if fs::write(parent.join("probe"), "").is_ok() {
        allow(0o755);
        eprintln!("skipped: this user may write anywhere");
        return;
    }
    let error = checkpoints.save(&state(3.0), &progressed(3)).expect_err("it may not be written");
    allow(0o755);
    assert!(error.to_string().contains(&format!("cannot write in {}: Permission denied", parent.display())), "{error}");
    assert_eq!(load(&checkpoints).expect("read").expect("one").progressed.step, 2, "the older one is good");
}

/// Generates texts that resemble a manifest.
fn manifest() -> impl Strategy<Value = String> {
    let value = prop_oneof![
        any::<u64>().prop_map(|number| number.to_string()),
        any::<f64>().prop_map(|number| format!("{number:e}")),
        ".*".prop_map(|text| serde_json::to_string(&text).expect("JSON")),
        prop::collection::vec(any::<u32>(), 0..4).prop_map(|numbers| format!("{numbers:?}")),
        Just("null".to_owned()),
        Just(r#"{"epoch":1,"batch":18446744073709551615}"#.to_owned()),
        Just(r#"{"a":["1e999",0],"b":["NaN",3]}"#.to_owned()),
        Just("[".repeat(10_000)),
    ];
    let name = prop::sample::select(vec![
        "format",
        "state_sha256",
        "manifest_sha256",
        "step",
        "position",
        "key",
        "seconds",
        "best",
        "stale",
        "unrecorded",
        "skipped",
        "settings",
    ]);
    prop::collection::vec((name, value), 0..14).prop_map(|fields| {
        let fields: Vec<String> = fields.iter().map(|(name, value)| format!("\"{name}\": {value}")).collect();
        format!("{{{}}}", fields.join(", "))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_manifest_panics(text in prop_oneof![manifest(), ".*"]) {
        let directory = directory();
        let (checkpoints, path) = two(&directory);
        fs::write(path.join("checkpoint.json"), &text).expect("written");
        match load(&checkpoints) {
            Ok(Some(restored)) => prop_assert_eq!(restored.progressed.step, 1, "{} passed", text),
            Err(TrainError::NewerCheckpoint { .. }) => {}
            other => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn no_flipped_bit_passes(place: prop::sample::Index, bit in 0u32..8, manifest: bool) {
        let directory = directory();
        let (checkpoints, path) = two(&directory);
        let file = path.join(if manifest { "checkpoint.json" } else { "state.safetensors" });
        let mut bytes = fs::read(&file).expect("read");
        let place = place.index(bytes.len());
        bytes[place] ^= 1u8 << bit;
        fs::write(&file, &bytes).expect("written");
        match load(&checkpoints) {
            Ok(Some(restored)) => prop_assert_eq!(restored.progressed.step, 1, "byte {} of {}", place, file.display()),
            // The flipped bit changed the format version.
            Err(TrainError::NewerCheckpoint { .. }) => {}
            other => prop_assert!(false, "{:?}", other),
        }
    }
}
