//! Tests of data sets through their public interface: resumption, prefetching and damaged files.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use burn::tensor::{Bool, Int, Tensor};
use grove_distributed::Communicator;
use grove_train::data::{
    Data, DataError, Examples, Order, PaddedBatch, Parts, Position, TokenBatch, TokenStream, TokenWindows, pad,
    prefetch,
};
use grove_tree::{Array, Key};
use proptest::prelude::*;

fn windows(tokens: u32, context: usize, batch_size: usize, key: Option<Key>) -> TokenWindows {
    let stream = TokenStream::new((0..tokens).collect());
    TokenWindows::new(stream, context, batch_size, key).expect("long enough")
}

fn numbers(n: usize, batch_size: usize) -> Examples<usize, Vec<usize>> {
    Examples::new((0..n).collect(), batch_size).expect("examples")
}

fn sorted(mut numbers: Vec<usize>) -> Vec<usize> {
    numbers.sort_unstable();
    numbers
}

#[test]
fn an_order_is_a_function_of_key_and_epoch() {
    let lengths: Vec<usize> = (0..100).map(|i| i * 37 % 23).collect();
    for order in [
        Order::new(100, 8).expect("fits"),
        Order::new(100, 8).and_then(Order::drop_last).expect("fits"),
        Order::new(100, 8).and_then(|order| order.bucket(lengths.clone(), 3)).expect("fits"),
    ] {
        assert_eq!(order.batches(0), order.batches(7), "without a key all epochs are the same");
        let shuffled = |seed, epoch| order.clone().shuffle(Key::new(seed)).batches(epoch);
        assert_eq!(shuffled(1, 5), shuffled(1, 5));
        assert_ne!(shuffled(1, 5), shuffled(1, 6));
        assert_ne!(shuffled(1, 5), shuffled(2, 5));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_example_comes_once_an_epoch(
        lengths in prop::collection::vec(0usize..50, 1..200),
        batch_size in 1usize..30,
        pool in prop::option::of(1usize..9),
        seed in prop::option::of(any::<u64>()),
        drop_last: bool,
        epoch: u64,
    ) {
        let n = lengths.len();
        let mut order = Order::new(n, batch_size).expect("sizes");
        if let Some(seed) = seed {
            order = order.shuffle(Key::new(seed));
        }
        if let Some(pool) = pool {
            order = order.bucket(lengths, pool).expect("a length for each");
        }
        let drop_last = drop_last && batch_size <= n;
        if drop_last {
            order = order.drop_last().expect("a whole batch");
        }
        let batches = order.batches(epoch);
        prop_assert_eq!(batches.len(), order.batches_per_epoch());
        let incomplete = batches.iter().filter(|batch| batch.len() != batch_size).count();
        prop_assert_eq!(incomplete, usize::from(!drop_last && n % batch_size != 0));
        let mut seen = sorted(batches.concat());
        seen.dedup();
        prop_assert_eq!(seen.len(), if drop_last { n - n % batch_size } else { n });
        prop_assert!(seen.iter().all(|&example| example < n));
    }
}

#[test]
fn shuffles_a_million_examples() {
    let order = Order::new(1_000_000, 32).expect("fits").shuffle(Key::new(0));
    assert_eq!(sorted(order.batches(0).concat()), (0..1_000_000).collect::<Vec<_>>());
}

#[test]
fn buckets_save_padding() {
    let sentences: Vec<Vec<u32>> = Key::new(9).randint_vec(2000, 1, 200).iter().map(|&n| vec![1; n as usize]).collect();
    let examples = || {
        let data = Examples::new(sentences.clone(), 16).expect("examples").collate(|batch| pad(&batch, 0));
        data.shuffle(Key::new(0))
    };
    let padding = |data: Examples<Vec<u32>, PaddedBatch>| {
        let batches: Vec<_> = data.epoch(3).collect::<Result<_, _>>().expect("loaded");
        let all: usize = batches.iter().map(|batch| batch.tokens.tokens.len()).sum();
        let real: usize = batches.iter().flat_map(|batch| &batch.lengths).sum();
        assert_eq!(real, sentences.iter().map(Vec::len).sum::<usize>());
        1.0 - real as f64 / all as f64
    };
    let (plain, bucketed) = (padding(examples()), padding(examples().bucket(Vec::len, 25).expect("a pool")));
    assert!(plain > 0.4 && bucketed < 0.05, "{plain} {bucketed}");
    // Short and long batches must be mixed, or training would see all short ones first.
    let data = examples().bucket(Vec::len, 25).expect("a pool");
    let lengths: Vec<usize> = data.epoch(0).map(|batch| batch.expect("loaded").tokens.columns).collect();
    assert!(lengths.windows(2).filter(|pair| pair[0] > pair[1]).count() > lengths.len() / 4);
}

#[test]
fn batches_of_arrays_have_their_rows() {
    type Flex = burn_flex::Flex;
    let device = Default::default();
    let x: Tensor<Flex, 3> = Tensor::<Flex, 1, Int>::arange(0..60, &device).float().reshape([10, 3, 2]);
    let y = Tensor::<Flex, 1, Int>::arange(0..10, &device);
    let even = y.clone().remainder_scalar(2).equal_elem(0);
    let arrays = (Array::new(x.clone()), Array::<Flex, 1, Int>::new(y), Array::<Flex, 1, Bool>::new(even));
    let data = Examples::from_arrays(arrays, 4).expect("ten rows").shuffle(Key::new(3));
    let mut seen = Vec::new();
    for (batch, size) in data.epoch(1).zip([4, 4, 2]) {
        let (rows, labels, even) = batch.expect("loaded");
        let labels: Vec<i64> = labels.val().into_data().iter().collect();
        assert_eq!((rows.shape(), labels.len()), ([size, 3, 2], size));
        for (i, label) in labels.iter().enumerate() {
            let expected = x.clone().narrow(0, *label as usize, 1).into_data();
            assert_eq!(rows.val().narrow(0, i, 1).into_data(), expected);
        }
        assert_eq!(
            even.val().into_data().iter::<bool>().collect::<Vec<_>>(),
            labels.iter().map(|y| y % 2 == 0).collect::<Vec<_>>()
        );
        seen.extend(labels);
    }
    assert_ne!(seen, (0..10).collect::<Vec<_>>(), "shuffled");
    seen.sort_unstable();
    assert_eq!(seen, (0..10).collect::<Vec<_>>());
}

#[test]
fn rejects_arrays_that_are_not_examples() {
    type Leaf = Array<burn_flex::Flex, 1>;
    let ones = |n: usize| Leaf::new(Tensor::ones([n], &Default::default()));
    let message = |arrays: (Leaf, Leaf)| Examples::from_arrays(arrays, 2).expect_err("refused").to_string();
    assert_eq!(
        message((ones(3), ones(2))),
        "the array `1` has 2 rows, but the array `0` has 3: give arrays with one row for each example"
    );
    assert_eq!(
        message((ones(3), Leaf::absent([3]))),
        "the array `1` has no values: load them before making a data set"
    );
    assert!(message((ones(0), ones(0))).contains("no examples"));
}

#[test]
fn evaluation_predicts_every_token_once_and_in_order() {
    let data = windows(103, 10, 4, None);
    let batches: Vec<TokenBatch> = data.epoch(0).collect::<Result<_, _>>().expect("loaded");
    assert_eq!(batches.iter().map(|batch| batch.rows).collect::<Vec<_>>(), [4, 4, 2]);
    assert_eq!(data.batches_per_epoch(), 3);
    let device = Default::default();
    let read = |get: &dyn Fn(&TokenBatch) -> burn::tensor::Tensor<burn_flex::Flex, 2, burn::tensor::Int>| -> Vec<u32> {
        batches.iter().flat_map(|batch| get(batch).into_data().iter::<u32>().collect::<Vec<_>>()).collect()
    };
    assert_eq!(read(&|batch| batch.inputs(&device)), (0..100).collect::<Vec<u32>>());
    assert_eq!(read(&|batch| batch.targets(&device)), (1..101).collect::<Vec<u32>>());
    assert_eq!(batches[2].tokens::<burn_flex::Flex>(&device).dims(), [2, 11]);
}

#[test]
fn training_windows_move_from_epoch_to_epoch() {
    let data = windows(1000, 16, 5, Some(Key::new(4)));
    let mut firsts = Vec::new();
    for e in 0..20 {
        let batches: Vec<TokenBatch> = data.epoch(e).collect::<Result<_, _>>().expect("loaded");
        assert_eq!(batches.len(), data.batches_per_epoch());
        let rows: Vec<&[u32]> = batches.iter().flat_map(|batch| batch.tokens.chunks_exact(17)).collect();
        assert_eq!(rows.len(), 5 * batches.len());
        // Rows are consecutive tokens, and no token is predicted twice.
        assert!(rows.iter().all(|row| row.iter().zip(row[0]..).all(|(&token, expected)| token == expected)));
        let mut starts: Vec<u32> = rows.iter().map(|row| row[0]).collect();
        firsts.push(starts[0] % 16);
        assert!(!starts.is_sorted(), "shuffled");
        starts.sort_unstable();
        assert!(starts.windows(2).all(|pair| pair[1] - pair[0] >= 16 && (pair[1] - pair[0]) % 16 == 0));
    }
    firsts.sort_unstable();
    firsts.dedup();
    assert!(firsts.len() > 5, "{firsts:?}");
}

#[test]
fn rejects_short_texts_and_zero_sizes() {
    let build = |tokens, context, batch_size, key| {
        TokenWindows::new(TokenStream::new(vec![0; tokens]), context, batch_size, key).map(|_| ())
    };
    let key = Some(Key::new(0));
    for key in [None, key] {
        let error = build(57, 128, 1, key).expect_err("too short").to_string();
        assert!(error.starts_with("the text has 57 tokens, but a context of 128 needs 129"), "{error}");
        assert!(build(128, 128, 1, key).is_err());
        build(129, 128, 1, key).expect("one window");
        assert!(matches!(build(0, 1, 1, key), Err(DataError::TooShort { .. })));
        assert!(matches!(build(9, 0, 1, key), Err(DataError::Zero { what: "context" })));
        assert!(matches!(build(9, 1, 0, key), Err(DataError::Zero { what: "batch size" })));
        assert!(matches!(build(9, usize::MAX, 1, key), Err(DataError::TooShort { .. })));
    }
    let error = build(1000, 100, 10, key).expect_err("nine windows").to_string();
    assert!(error.contains("a batch of 10 is larger than the data, which has 9 windows of 100 tokens"), "{error}");
    build(1000, 100, 9, key).expect("nine windows");
    build(1000, 100, 64, None).expect("a small batch will do for evaluation");
    let part = TokenStream::new(vec![0; 100]).part(90..100);
    let error = TokenWindows::new(part, 20, 1, None).expect_err("too short").to_string();
    assert!(error.starts_with("the part of the text from token 90 to 100 has 10 tokens"), "{error}");
}

/// Returns some batches from a position on, and the position after them.
fn run<D: Data>(data: &Arc<D>, from: Position, batches: usize) -> (Position, Vec<D::Batch>) {
    let mut position = from;
    let mut seen = Vec::new();
    for item in prefetch(data.clone(), from, 3).take(batches) {
        let (after, batch) = item.expect("loaded");
        position = after;
        seen.push(batch);
    }
    (position, seen)
}

#[test]
fn a_resumed_run_sees_the_same_batches() {
    fn check<D: Data<Batch: PartialEq + std::fmt::Debug>>(data: D) {
        let data = Arc::new(data);
        let per_epoch = data.batches_per_epoch();
        let total = 3 * per_epoch + 2;
        let (end, whole) = run(&data, Position::default(), total);
        assert_eq!(end, Position { epoch: 3, batch: 2 });
        let plain: Vec<_> = (0..4).flat_map(|e| data.epoch(e)).take(total).collect::<Result<_, _>>().expect("loaded");
        assert_eq!(whole, plain, "loaded ahead or in place");
        for stop in 0..total {
            let (position, before) = run(&data, Position::default(), stop);
            let saved = serde_json::to_string(&position).expect("written");
            let (last, after) = run(&data, serde_json::from_str(&saved).expect("read"), total - stop);
            assert_eq!([before, after].into_iter().flatten().collect::<Vec<_>>(), whole, "stopped after {stop}");
            assert_eq!(last, end);
        }
    }
    check(windows(300, 10, 5, Some(Key::new(1))));
    check(windows(300, 10, 5, None));
    check(numbers(23, 4).shuffle(Key::new(2)));
    check(numbers(23, 4).shuffle(Key::new(2)).bucket(|&n| n % 5, 2).expect("a pool"));
}

#[test]
fn rejects_positions_beyond_the_epoch() {
    let data = Arc::new(numbers(10, 5));
    let mut batches = prefetch(data, Position { epoch: 1, batch: 2 }, 1);
    let error = batches.next().expect("an error").expect_err("no such batch").to_string();
    assert!(error.starts_with("epoch 2, batch 3 does not exist, because an epoch has 2 batches"), "{error}");
    assert!(batches.next().is_none());
}

/// Data set that counts its loads and fails as `fail` determines.
struct Counting {
    loaded: AtomicU64,
    fail: fn(usize) -> Result<(), DataError>,
}

impl Data for Counting {
    type Batch = usize;

    fn order(&self, _epoch: u64) -> Vec<Vec<usize>> {
        (0..self.batches_per_epoch()).map(|i| vec![i]).collect()
    }

    fn batches_per_epoch(&self) -> usize {
        1000
    }

    fn load(&self, _epoch: u64, examples: &[usize]) -> Result<usize, DataError> {
        self.loaded.fetch_add(1, Ordering::SeqCst);
        (self.fail)(examples[0]).map(|()| examples[0])
    }
}

#[test]
fn dropping_the_iterator_ends_the_thread() {
    for depth in [0, 1, 4] {
        let data = Arc::new(Counting { loaded: AtomicU64::new(0), fail: |_| Ok(()) });
        let mut batches = prefetch(data.clone(), Position::default(), depth);
        for expected in 0..3 {
            assert_eq!(batches.next().expect("endless").expect("loaded").1, expected);
        }
        drop(batches);
        // The thread has dropped its handle, and never loaded far ahead.
        assert_eq!(Arc::strong_count(&data), 1);
        assert!(data.loaded.load(Ordering::SeqCst) <= 3 + depth as u64 + 2);
        drop(prefetch(data.clone(), Position::default(), depth));
        assert_eq!(Arc::strong_count(&data), 1, "dropped before the first batch");
    }
}

#[test]
fn batches_are_loaded_ahead() {
    let data = Arc::new(Counting { loaded: AtomicU64::new(0), fail: |_| Ok(()) });
    let _batches = prefetch(data.clone(), Position::default(), 4);
    let start = Instant::now();
    while data.loaded.load(Ordering::SeqCst) < 5 {
        assert!(start.elapsed() < Duration::from_secs(30), "nothing is loaded ahead");
        std::thread::yield_now();
    }
}

#[test]
fn errors_and_panics_come_as_the_last_item() {
    let error = |n: usize| if n == 2 { Err(DataError::other("cat.png is not an image")) } else { Ok(()) };
    let panic = |n: usize| if n == 2 { panic!("example {n} is beyond me") } else { Ok(()) };
    for (fail, message) in [
        (error as fn(usize) -> _, "cat.png is not an image"),
        (panic as fn(usize) -> _, "loading data panicked: example 2 is beyond me"),
    ] {
        let data = Arc::new(Counting { loaded: AtomicU64::new(0), fail });
        let mut batches = prefetch(data, Position::default(), 8);
        assert_eq!(batches.next().expect("first").expect("loaded").0, Position { epoch: 0, batch: 1 });
        assert_eq!(batches.next().expect("second").expect("loaded").0, Position { epoch: 0, batch: 2 });
        assert_eq!(batches.next().expect("third").expect_err("failed").to_string(), message);
        assert!(batches.next().is_none() && batches.next().is_none());
    }
}

#[test]
fn a_rank_whose_part_cannot_be_read_borrows_an_example() {
    /// Data set with unreadable examples.
    struct Damaged(&'static [usize]);
    impl Data for Damaged {
        type Batch = Vec<usize>;
        fn order(&self, _epoch: u64) -> Vec<Vec<usize>> {
            vec![(0..6).collect()]
        }
        fn batches_per_epoch(&self) -> usize {
            1
        }
        fn load(&self, _epoch: u64, examples: &[usize]) -> Result<Vec<usize>, DataError> {
            let read: Vec<usize> = examples.iter().copied().filter(|i| !self.0.contains(i)).collect();
            if read.is_empty() { Err(DataError::NoneReadable(format!("{examples:?}"))) } else { Ok(read) }
        }
    }
    let parts = |damaged: &'static [usize], size: usize| -> Vec<Result<(Vec<usize>, usize), String>> {
        let ranks = Communicator::threads(size);
        let part = |comm: &Communicator| Parts::new(Arc::new(Damaged(damaged)), comm).epoch(0).next().expect("one");
        let found = ranks.iter().map(part);
        found.map(|part| part.map(|part| (part.batch, part.examples)).map_err(|error| error.to_string())).collect()
    };
    assert_eq!(parts(&[0, 1, 2], 3), [Ok((vec![3], 0)), Ok((vec![3], 2)), Ok((vec![4, 5], 2))]);
    // More ranks than examples: a rank without examples borrows the first readable one.
    assert_eq!(parts(&[0], 8)[6..], [Ok((vec![1], 0)), Ok((vec![1], 0))]);
    assert_eq!(parts(&[0, 1, 2, 3, 4, 5], 2), [Err("[0, 1, 2]".into()), Err("[3, 4, 5]".into())]);
}

#[test]
fn an_epoch_without_batches_is_an_error() {
    struct Nothing;
    impl Data for Nothing {
        type Batch = ();
        fn order(&self, _epoch: u64) -> Vec<Vec<usize>> {
            Vec::new()
        }
        fn batches_per_epoch(&self) -> usize {
            0
        }
        fn load(&self, _epoch: u64, _examples: &[usize]) -> Result<(), DataError> {
            Ok(())
        }
    }
    let first = prefetch(Arc::new(Nothing), Position::default(), 1).next();
    assert!(matches!(first, Some(Err(DataError::NoBatches { epoch: 0 }))));
}

#[test]
fn a_mapped_file_is_the_tokens_that_were_written() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("deep/text.tokens");
    for (vocabulary, width) in [(65_536, 2), (65_537, 4), (u32::MAX, 4)] {
        // More than one block.
        let tokens: Vec<u32> = Key::new(3).bits(100_001).iter().map(|bits| bits % vocabulary).collect();
        assert_eq!(TokenStream::write(&path, tokens.iter().copied(), vocabulary).expect("written"), 100_001);
        assert_eq!(std::fs::metadata(&path).expect("there").len(), 24 + width * 100_001);
        let (mapped, memory) = (TokenStream::open(&path).expect("opened"), TokenStream::new(tokens));
        assert_eq!(mapped.len(), memory.len());
        assert_eq!(mapped.largest(), memory.largest());
        assert_eq!(mapped.read(0..100_001), memory.read(0..100_001));
        let data = |stream: &TokenStream| {
            let (train, _) = stream.split(0.25).expect("a fraction");
            let data = TokenWindows::new(train, 33, 7, Some(Key::new(8))).expect("long enough");
            data.epoch(2).collect::<Result<Vec<_>, _>>().expect("loaded")
        };
        assert_eq!(data(&mapped), data(&memory));
    }
    TokenStream::write(&path, [], 10).expect("written");
    assert!(TokenStream::open(&path).expect("opened").is_empty());
    let error = TokenWindows::new(TokenStream::open(&path).expect("opened"), 4, 1, None).expect_err("too short");
    assert!(error.to_string().contains("text.tokens has 0 tokens"), "{error}");
}

#[test]
fn a_stray_token_leaves_the_old_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("text.tokens");
    TokenStream::write(&path, 0..10, 10).expect("written");
    let error = TokenStream::write(&path, (0..10).rev().chain([70_000]), 65_536).expect_err("stray").to_string();
    assert!(error.contains("text.tokens: token 70000 at position 10 is not in a vocabulary of 65536"), "{error}");
    assert_eq!(TokenStream::open(&path).expect("opened").read(0..10), (0..10).collect::<Vec<_>>());
    assert_eq!(std::fs::read_dir(directory.path()).expect("listed").count(), 1);
    let error = TokenStream::write(path.join("beneath"), 0..10, 10).expect_err("no directory").to_string();
    assert!(error.contains("text.tokens"), "{error}");
}

/// Opens a file of these bytes.
fn open(bytes: &[u8]) -> (PathBuf, Result<TokenStream, DataError>) {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), bytes).expect("written");
    (file.path().into(), TokenStream::open(file.path()))
}

fn token_file(version: u32, width: u32, content: &[u8], count: u64) -> Vec<u8> {
    [&b"grovetok"[..], &version.to_le_bytes(), &width.to_le_bytes(), content, &count.to_le_bytes()].concat()
}

#[test]
fn rejects_damaged_token_files() {
    let good = token_file(1, 2, &[7; 100], 50);
    assert_eq!(open(&good).1.expect("good").len(), 50);
    for (bytes, words) in [
        (vec![], "is empty"),
        (b"once upon a time there was a text".to_vec(), "it starts with \"once upo\""),
        (b"\xff\xfe".to_vec(), "it starts with"),
        (token_file(1, 2, &[7; 100], 51), "has 50 tokens, but its last bytes claim 51"),
        (token_file(1, 2, &[7; 100], u64::MAX), "has 50 tokens"),
        (token_file(1, 4, &[7; 100], 50), "has 25 tokens"),
        (token_file(1, 4, &[7; 102], 25), "truncated or damaged"),
        (token_file(1, 3, &[7; 99], 33), "claims 3 bytes per token"),
        (token_file(1, 0, &[], 0), "claims 0 bytes per token"),
        (token_file(0, 2, &[7; 100], 50), "claims the version 0"),
        (token_file(9, 77, &[], 50), "version 9; this version of grove reads version 1: update grove"),
    ] {
        let (path, result) = open(&bytes);
        let error = result.expect_err(words).to_string();
        assert!(error.contains(words) && error.contains(&path.display().to_string()), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
    for length in 0..good.len() {
        assert!(open(&good[..length]).1.is_err(), "cut to {length} bytes");
    }
    let error = TokenStream::open(std::env::temp_dir()).expect_err("a directory").to_string();
    assert!(error.contains("it is a directory"), "{error}");
    let error = TokenStream::open("/nowhere/text.tokens").expect_err("absent").to_string();
    assert!(error.starts_with("cannot open /nowhere/text.tokens: "), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes(
        bytes in prop::collection::vec(any::<u8>(), 0..100),
        header in prop::option::of((0u32..3, 0u32..6)),
        count in prop::option::of(prop_oneof![0u64..50, any::<u64>()]),
    ) {
        let mut file = Vec::new();
        if let Some((version, width)) = header {
            file.extend_from_slice(&[&b"grovetok"[..], &version.to_le_bytes(), &width.to_le_bytes()].concat());
        }
        file.extend_from_slice(&bytes);
        if let Some(count) = count {
            file.extend_from_slice(&count.to_le_bytes());
        }
        if let (_, Ok(stream)) = open(&file) {
            prop_assert_eq!(stream.read(0..stream.len()).len(), stream.len());
            prop_assert!(stream.len() <= file.len() / 2);
        }
    }
}

/// Batch normalisation needs at least two images, also if others of the batch are unreadable.
#[test]
fn a_training_batch_has_two_images_that_can_be_read() {
    use grove_images::{
        Preprocessor,
        augment::{Recipe, TrainTransform},
        datasets::open_labelled,
    };
    use grove_train::classify::ImageBatches;

    let directory = tempfile::tempdir().unwrap();
    for (class, name, whole) in [("a", "0", true), ("a", "1", false), ("b", "0", true), ("b", "1", false)] {
        std::fs::create_dir_all(directory.path().join(class)).unwrap();
        let file = directory.path().join(class).join(format!("{name}.png"));
        match whole {
            true => drop(std::fs::copy("../models/assets/images/digit.png", file).unwrap()),
            false => std::fs::write(file, "no image").unwrap(),
        }
    }
    let (images, _) = open_labelled(directory.path(), |_| ()).unwrap();
    let batches = || {
        let preprocessor = Preprocessor::for_images(Some([1, 28, 28]), 28).unwrap();
        ImageBatches::new(images.clone(), 2, preprocessor, [28, 28]).unwrap()
    };
    let loaded = |data: &ImageBatches, epoch| {
        let order = data.order(epoch);
        order.iter().map(|batch| data.load(epoch, batch).map(|batch| batch.classes)).collect::<Vec<_>>()
    };
    assert_eq!(loaded(&batches(), 0).into_iter().map(Result::unwrap).collect::<Vec<_>>(), [[0], [1]]);
    let transform = TrainTransform { recipe: Recipe::Shift, jitter: 0.0, affine: 0.0, erasing: 0.0 };
    let training = batches().training(transform, None, Key::new(3)).unwrap();
    let (mut pairs, mut empty) = (0, 0);
    for classes in (0..8).flat_map(|epoch| loaded(&training, epoch)) {
        match classes {
            Ok(classes) => {
                assert_eq!(classes.len(), 2);
                pairs += 1;
            }
            Err(error) => {
                assert!(error.to_string().contains("no image of a batch can be read"), "{error}");
                empty += 1;
            }
        }
    }
    assert!(pairs > empty, "{pairs} of {}", pairs + empty);
}
