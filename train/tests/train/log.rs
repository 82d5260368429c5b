//! Tests of the logs of a run, with readers that share no code with the writers.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use grove_train::log::{
    EVAL_LOSS, LEARNING_RATE, LogError, LossCurve, MetricsFile, Progress, Record, Sink, TOKENS_PER_SECOND, TRAIN_LOSS,
    TensorBoard, read_metrics, records_table, summary_table,
};

fn record(step: u64) -> Record {
    Record::new(step, step as f64 / 4.0, step as f64 * 0.1).with(TRAIN_LOSS, 3.0 / step as f64)
}

fn steps(records: &[Record]) -> Vec<u64> {
    records.iter().map(|record| record.step).collect()
}

/// Writes a metrics file with records of steps 1 to 6, followed by a text.
fn metrics(directory: &Path, after: &str) -> PathBuf {
    let path = directory.join("run/metrics.jsonl");
    let mut file = MetricsFile::create(&path).expect("created");
    (1..=6).for_each(|step| file.record(&record(step)).expect("recorded"));
    fs::OpenOptions::new().append(true).open(&path).expect("opened").write_all(after.as_bytes()).expect("written");
    path
}

#[test]
fn records_survive_json() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("metrics.jsonl");
    let record = Record::new(u64::MAX, 0.25, 1e-3)
        .with(TRAIN_LOSS, f64::NAN)
        .with(EVAL_LOSS, f64::INFINITY)
        .with("lowest", f64::NEG_INFINITY)
        .with("whole", 3.0)
        .with("large", 1e300)
        .with("a \"name\"\n", -0.5);
    MetricsFile::create(&path).expect("created").record(&record).expect("recorded");

    let text = fs::read_to_string(&path).expect("read");
    assert_eq!(text.lines().count(), 1);
    let json: serde_json::Value = serde_json::from_str(&text).expect("plain JSON");
    assert_eq!((&json["step"], &json["train/loss"]), (&u64::MAX.into(), &"NaN".into()));

    let mut read = read_metrics(&path).expect("read");
    assert!(read[0].values.remove(TRAIN_LOSS).expect("there").is_nan());
    let mut expected = record;
    expected.values.remove(TRAIN_LOSS);
    assert_eq!(read, [expected]);
    let null: Record = serde_json::from_str(r#"{"step":1,"epoch":0,"seconds":0,"x":null}"#).expect("read");
    assert!(null.get("x").expect("there").is_nan());
}

#[test]
fn a_resumed_file_has_no_step_twice() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = metrics(directory.path(), "{\"step\":7,\"epo");
    assert_eq!(steps(&read_metrics(&path).expect("read")), [1, 2, 3, 4, 5, 6], "the torn line is left out");

    let before = fs::read_to_string(&path).expect("read");
    let (mut file, kept) = MetricsFile::resume(&path, 4).expect("resumed");
    assert_eq!(kept, (1..=4).map(record).collect::<Vec<_>>());
    file.record(&record(5)).expect("recorded");
    file.record(&record(6).with(EVAL_LOSS, 1.0)).expect("recorded");
    file.flush().expect("flushed");
    let after = fs::read_to_string(&path).expect("read");
    assert!(before.lines().take(5).eq(after.lines().take(5)), "kept lines are as they were");
    assert_eq!(steps(&read_metrics(&path).expect("read")), [1, 2, 3, 4, 5, 6]);

    // Cut the file at every byte, including after a complete record without its line end.
    let whole = fs::read(&path).expect("read");
    for length in 0..=whole.len() {
        fs::write(&path, &whole[..length]).expect("written");
        let (mut file, kept) = MetricsFile::resume(&path, 3).expect("resumed");
        let ends = whole[..length].iter().filter(|byte| **byte == b'\n').count();
        assert!(kept.len() == ends.min(3) || kept.len() == ends + 1 && kept.len() <= 3, "{length}: {}", kept.len());
        file.record(&record(4)).expect("recorded");
        assert_eq!(read_metrics(&path).expect("read").len(), kept.len() + 1);
    }
    let (_, none) = MetricsFile::resume(directory.path().join("new/metrics.jsonl"), 9).expect("created");
    assert!(none.is_empty());
}

#[test]
fn a_bad_line_is_named_and_nothing_is_lost() {
    let directory = tempfile::tempdir().expect("a directory");
    let deep = "[".repeat(100_000);
    for bad in [
        "nonsense",
        "{}",
        "[]",
        "\0\0\0",
        &deep,
        r#"{"step":-1,"epoch":0,"seconds":0}"#,
        r#"{"step":1.5,"epoch":0,"seconds":0}"#,
        r#"{"step":1,"epoch":0,"seconds":0,"x":"many"}"#,
        r#"{"step":1,"epoch":0,"seconds":0,"x":{"y":1}}"#,
        r#"{"step":1,"step":2,"epoch":0,"seconds":0}"#,
        r#"{"step":1,"epoch":0,"seconds":0,"x":1e999}"#,
    ] {
        let path = metrics(directory.path(), &format!("{bad}\n{{\"step\":8,\"epoch\":2,\"seconds\":1}}\n"));
        let before = fs::read(&path).expect("read");
        let error = MetricsFile::resume(&path, 100).map(|_| ()).expect_err(bad);
        assert!(matches!(&error, LogError::BadLine { line: 7, .. }), "{bad:.40}: {error}");
        assert!(error.to_string().contains("metrics.jsonl, line 7"), "{error}");
        assert_eq!(fs::read(&path).expect("read"), before);
    }
    // Bytes that are not UTF-8, and a line longer than the limit.
    let path = metrics(directory.path(), "");
    fs::write(&path, b"{\"step\":1,\xff\xfe\n").expect("written");
    assert!(matches!(read_metrics(&path), Err(LogError::BadLine { line: 1, .. })));
    fs::write(&path, vec![b' '; 3 << 20]).expect("written");
    fs::OpenOptions::new().append(true).open(&path).expect("opened").write_all(&[b'x'; 2 << 20]).expect("written");
    assert!(matches!(read_metrics(&path), Err(LogError::BadLine { .. })));
    // A power failure leaves zeros at the end.
    assert_eq!(read_metrics(metrics(directory.path(), "\0\0\0\0")).expect("read").len(), 6);
    // Empty lines and CRLF line ends are accepted.
    assert_eq!(read_metrics(metrics(directory.path(), "\r\n\n")).expect("read").len(), 6);
}

#[test]
fn errors_name_the_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("file");
    fs::write(&file, "").expect("written");
    let error = TensorBoard::create(file.join("board")).map(|_| ()).expect_err("a file in the way");
    assert!(matches!(&error, LogError::NotADirectory { path } if *path == file), "{error}");
    let error = MetricsFile::create(file.join("metrics.jsonl")).map(|_| ()).expect_err("a file in the way");
    assert!(matches!(error, LogError::NotADirectory { .. }), "{error}");
    let error = MetricsFile::resume(directory.path(), 1).map(|_| ()).expect_err("a directory");
    assert!(error.to_string().contains(&directory.path().display().to_string()), "{error}");
    let mut curve = LossCurve::new(file.join("loss.svg"));
    assert!(curve.record(&record(1)).expect_err("a file in the way").to_string().contains("file"));
    let mut metrics = MetricsFile::create(directory.path().join("metrics.jsonl")).expect("created");
    let error = metrics.record(&record(1).with("step", 1.0)).expect_err("reserved");
    assert!(matches!(error, LogError::ReservedName { step: 1, .. }), "{error}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error_that_keeps_no_record_from_others() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("metrics.jsonl");
    let mut sinks =
        vec![MetricsFile::create("/dev/full").expect("opened"), MetricsFile::create(&path).expect("created")];
    let error = sinks.record(&record(1)).expect_err("full");
    assert!(error.to_string().starts_with("cannot write /dev/full: No space left"), "{error}");
    assert_eq!(read_metrics(&path).expect("read").len(), 1);
}

/// Computes CRC-32C bit by bit, from its definition.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 })
    })
}

fn masked(bytes: &[u8]) -> u32 {
    let crc = crc32c(bytes);
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Returns the messages of an event file.
fn messages(path: &Path) -> Vec<Vec<u8>> {
    let bytes = fs::read(path).expect("read");
    let (mut rest, mut messages) = (&bytes[..], Vec::new());
    while !rest.is_empty() {
        let word = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().expect("four bytes"));
        let length = u64::from_le_bytes(rest[..8].try_into().expect("eight bytes")) as usize;
        assert_eq!(word(8), masked(&rest[..8]), "checksum of the length");
        assert_eq!(word(12 + length), masked(&rest[12..12 + length]), "checksum of the message");
        messages.push(rest[12..12 + length].to_vec());
        rest = &rest[16 + length..];
    }
    messages
}

fn varint(rest: &mut &[u8]) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let byte = rest[0];
        *rest = &rest[1..];
        value |= u64::from(byte & 127) << shift;
        shift += 7;
        if byte < 128 {
            return value;
        }
    }
}

/// Returns the fields of a protobuf message: number, and the bytes of the value (eight bytes for a varint).
fn fields(mut rest: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut fields = Vec::new();
    while !rest.is_empty() {
        let key = varint(&mut rest);
        let length = match key & 7 {
            0 => {
                fields.push((key >> 3, varint(&mut rest).to_le_bytes().to_vec()));
                continue;
            }
            1 => 8,
            5 => 4,
            2 => varint(&mut rest) as usize,
            other => panic!("wire type {other}"),
        };
        fields.push((key >> 3, rest[..length].to_vec()));
        rest = &rest[length..];
    }
    fields
}

fn field(message: &[u8], number: u64) -> Vec<u8> {
    fields(message).into_iter().find(|field| field.0 == number).unwrap_or_else(|| panic!("no field {number}")).1
}

#[test]
fn event_files_follow_the_format() {
    assert_eq!(crc32c(b"123456789"), 0xe306_9283, "the check value of CRC-32C");
    let directory = tempfile::tempdir().expect("a directory");
    let mut board = TensorBoard::create(directory.path()).expect("created");
    board.text("config", 0, "learning rate: 3e-4").expect("written");
    board.record(&Record::new(300, 1.5, 2.0).with(TRAIN_LOSS, 0.0).with(EVAL_LOSS, f64::NAN)).expect("recorded");
    board.flush().expect("flushed");
    let events = messages(board.path());
    assert_eq!(events.len(), 4);
    assert_eq!(field(&events[0], 3), b"brain.Event:2");
    let wall_time = f64::from_le_bytes(field(&events[0], 1).try_into().expect("a double"));
    assert!(wall_time > 1.7e9, "{wall_time}");
    assert_eq!(field(&field(&events[1], 7), 1)[0], 1, "a session starts");

    let text = field(&field(&events[2], 5), 1);
    assert_eq!(field(&text, 1), b"config");
    assert_eq!(field(&field(&field(&text, 9), 1), 1), b"text", "the plugin that shows it");
    assert_eq!(field(&field(&text, 8), 8), b"learning rate: 3e-4");

    assert_eq!(field(&events[3], 2), 300u64.to_le_bytes());
    let values: Vec<(String, f32)> = fields(&field(&events[3], 5))
        .iter()
        .map(|(_, value)| {
            let number = f32::from_le_bytes(field(value, 2).try_into().expect("a float"));
            (String::from_utf8(field(value, 1)).expect("a name"), number)
        })
        .collect();
    assert_eq!(values[1], (TRAIN_LOSS.into(), 0.0));
    assert_eq!(values[2], ("epoch".into(), 1.5));
    assert!(values[0].0 == EVAL_LOSS && values[0].1.is_nan());
}

#[test]
fn a_resumed_run_voids_later_events_in_a_file_that_sorts_later() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("events.out.tfevents.0099.x.1.grove"), "").expect("written");
    // Written on a machine whose clock was ahead.
    fs::write(directory.path().join("events.out.tfevents.5000000000.x.1.grove"), "").expect("written");
    let paths: Vec<PathBuf> =
        (1..4).map(|step| TensorBoard::resume(directory.path(), step).expect("resumed").path().into()).collect();
    assert!(paths.is_sorted() && paths[0] > directory.path().join("events.out.tfevents.5000000000.x.1.grove"));
    let start = &messages(&paths[2])[1];
    assert_eq!((field(start, 2)[0], field(&field(start, 7), 1)[0]), (4, 1), "steps from 4 on are void");
    let name = paths[2].file_name().expect("a name").to_string_lossy().into_owned();
    assert!(name.ends_with(&format!(".{}.grove", std::process::id())), "{name}");
}

/// To check the files with TensorBoard's own reader, keep them: `GROVE_KEEP=/tmp/keep cargo test --workspace --test
/// log`, then `python tools/check_tensorboard.py /tmp/keep/killed/tensorboard /tmp/keep/killed/metrics.jsonl`.
#[test]
fn a_killed_run_resumes() {
    let directory = tempfile::tempdir().expect("a directory");
    let root = std::env::var_os("GROVE_KEEP").map_or(directory.path().into(), PathBuf::from).join("killed");
    let _ = fs::remove_dir_all(&root);
    let (metrics, board) = (root.join("metrics.jsonl"), root.join("tensorboard"));
    let mut events = TensorBoard::create(&board).expect("created");
    events.text("config", 0, "```\nlearning_rate: 3e-4\n```").expect("written");
    let first = events.path().to_path_buf();
    let mut sinks: Vec<Box<dyn Sink>> =
        vec![Box::new(MetricsFile::create(&metrics).expect("created")), Box::new(events)];
    let row =
        |step: u64, run: f64| record(step).with("run", run).with(EVAL_LOSS, if step == 4 { f64::NAN } else { run });
    (1..=20).for_each(|step| sinks.record(&row(step, 1.0)).expect("recorded"));
    drop(sinks);
    // As if killed in the middle of the last record.
    for path in [&first, &metrics] {
        let file = fs::OpenOptions::new().write(true).open(path).expect("opened");
        file.set_len(file.metadata().expect("there").len() - 7).expect("cut");
    }
    // Resume twice. The second resume starts before the first one, which is killed too.
    for (run, resumed, end) in [(2.0, 12, 18), (3.0, 8, 30)] {
        let (file, kept) = MetricsFile::resume(&metrics, resumed).expect("resumed");
        assert_eq!(kept.len() as u64, resumed);
        let mut sinks: Vec<Box<dyn Sink>> =
            vec![Box::new(file), Box::new(TensorBoard::resume(&board, resumed).expect("resumed"))];
        (resumed + 1..=end).for_each(|step| sinks.record(&row(step, run)).expect("recorded"));
        sinks.flush().expect("flushed");
    }
    let records = read_metrics(&metrics).expect("read");
    assert_eq!(steps(&records), (1..=30).collect::<Vec<_>>());
    assert!(records.iter().all(|record| record.get("run") == Some(if record.step <= 8 { 1.0 } else { 3.0 })));
    assert_eq!(fs::read_dir(&board).expect("listed").count(), 3);
}

/// Checks that tags are closed in order and text is escaped; returns the element names.
fn well_formed(svg: &str) -> Vec<String> {
    let (mut open, mut names) = (Vec::new(), Vec::new());
    let mut rest = svg.trim();
    while !rest.is_empty() {
        let (text, after) = rest.split_once('<').expect("a tag");
        assert!(!text.contains('>'), "{text}");
        let (tag, after) = after.split_once('>').expect("the end of a tag");
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        assert!(!tag.contains("NaN") && !tag.contains("inf"), "{tag}");
        match tag.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop().as_deref(), Some(name)),
            None => {
                let name = tag.split([' ', '/']).next().expect("a name").to_string();
                names.push(name.clone());
                if !tag.ends_with('/') {
                    open.push(name);
                }
            }
        }
        rest = after.trim_start();
    }
    assert!(open.is_empty(), "{open:?}");
    names
}

/// Draws records and returns the image. With GROVE_KEEP=DIR the image is kept there for inspection.
fn drawn(name: &str, log_y: bool, records: &[Record]) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    let file: String = name.chars().map(|c| if c.is_alphanumeric() { c } else { '-' }).collect();
    let path = std::env::var_os("GROVE_KEEP").map_or(directory.path().into(), PathBuf::from).join(file + ".svg");
    let mut curve = LossCurve::new(&path).title(name).log_y(log_y).with_records(records);
    curve.flush().expect("drawn");
    fs::read_to_string(path).unwrap_or_default()
}

/// Returns noise from -0.5 to 0.5.
fn noise(step: u64) -> f64 {
    f64::from((step as u32).wrapping_mul(2_654_435_761) >> 8) / f64::from(1 << 24) - 0.5
}

/// Returns the records of a typical run: training loss at every step, and evaluations at intervals.
fn run(steps: u64, every: u64) -> Vec<Record> {
    let loss = |step: u64| 2.2 + 8.5 * (-(step as f64) / (steps as f64 / 8.0)).exp();
    (1..=steps)
        .map(|step| {
            let record = Record::new(step, 0.0, 0.0).with(TRAIN_LOSS, loss(step) * (1.0 + 0.15 * noise(step)));
            if step % every == 0 { record.with(EVAL_LOSS, loss(step) + 0.3) } else { record }
        })
        .collect()
}

#[test]
fn a_plot_shows_both_losses() {
    for (name, log_y, records) in [
        ("long", false, run(50_000, 2500)),
        ("long, logarithmic", true, run(50_000, 2500)),
        ("short <&\"quoted\">\u{7}", false, run(24, 6)),
    ] {
        let svg = drawn(name, log_y, &records);
        assert!(svg.contains("train/loss") && svg.contains("eval/loss") && svg.contains("step"), "{name}");
        let elements = well_formed(&svg);
        assert!(elements.iter().filter(|element| *element == "polyline").count() >= 2, "{name}");
        assert!(svg.len() < 200_000, "{name}: {} bytes", svg.len());
    }
    assert!(drawn("short, escaped <&>", false, &run(24, 6)).contains("&lt;&amp;&gt;"));
}

#[test]
fn a_plot_shows_learning_rate_and_perplexity() {
    let rate = |step: u64| 1e-3 * (1.0 - step as f64 / 400.0);
    let plain = run(400, 20);
    let with_rate: Vec<Record> =
        plain.iter().map(|record| record.clone().with(LEARNING_RATE, rate(record.step))).collect();
    let svg = drawn("learning rate", false, &with_rate);
    well_formed(&svg);
    assert!(svg.contains("learning rate 0 (peak 9.98e-4)") && !svg.contains("perplexity"), "{}", &svg[..1500]);
    assert!(svg.contains("prefers-color-scheme:dark"));
    let polylines = |svg: &str| svg.matches("<polyline").count();
    assert_eq!(polylines(&svg), polylines(&drawn("plain", false, &plain)) + 2, "the curve, and its line in the legend");

    for log_y in [false, true] {
        let named = |record: &Record| match record.get(EVAL_LOSS) {
            Some(loss) => record.clone().with("eval/perplexity", loss.exp()),
            None => record.clone(),
        };
        let records: Vec<Record> = with_rate.iter().map(named).collect();
        let svg = drawn(if log_y { "perplexity, logarithmic" } else { "perplexity" }, log_y, &records);
        well_formed(&svg);
        assert!(svg.contains("eval/loss 2.5029 (perplexity 12.2)"), "{}", &svg[..1500]);
        // The ticks at losses of 2 and 10.
        for label in ["\n2\n", "\n7.39\n", "\n10\n", "\n22,026\n"] {
            assert!(svg.contains(label), "{label}");
        }
    }
}

#[test]
fn any_numbers_can_be_plotted() {
    let cases: &[(&str, &[f64])] = &[
        ("one point", &[2.5]),
        ("one zero", &[0.0]),
        ("constant", &[1.0, 1.0, 1.0]),
        ("nothing finite", &[f64::NAN, f64::INFINITY]),
        ("diverged", &[3.0, 2.5, 2.2, 2.4, 4.0, f64::NAN, f64::NAN, 9.0, f64::NAN, f64::INFINITY]),
        ("negative", &[1.0, 0.1, -0.5, -2.0]),
        ("all negative", &[-3.0, -2.0]),
        ("huge", &[f64::MAX, f64::MIN, 1e30, -1e30, 1e29]),
        ("tiny", &[f64::MIN_POSITIVE, 5e-324, 1e-300]),
        ("close together", &[1e15, 1e15 + 1.0]),
        ("hardly apart", &[1.0, 1.0 + f64::EPSILON]),
        ("many decades", &[1e-30, 1e-12, 1e6, 1e30]),
        ("small", &[3e-5, 1e-5, 8e-6]),
    ];
    for (name, values) in cases {
        for (kind, from) in [("", 1), (" late", u64::MAX - 20), (" resumed", 1_000_000)] {
            let records: Vec<_> = values
                .iter()
                .zip(from..)
                .map(|(value, step)| Record::new(step, 0.0, 0.0).with(TRAIN_LOSS, *value))
                .collect();
            for log_y in [false, true] {
                let svg = drawn(&format!("{name}{kind}{}", if log_y { " log" } else { "" }), log_y, &records);
                assert!(svg.contains("train/loss") && !svg.contains("eval/loss"), "{name}");
                well_formed(&svg);
            }
        }
    }
    assert!(drawn("nothing", false, &[]).is_empty(), "without points there is no file");
}

#[test]
fn a_plot_is_redrawn_now_and_then() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("plots/loss.svg");
    let mut curve = LossCurve::new(&path).every(Duration::from_secs(3600));
    curve.record(&record(1)).expect("recorded");
    let first = fs::read(&path).expect("drawn at once");
    curve.record(&record(2)).expect("recorded");
    assert_eq!(fs::read(&path).expect("read"), first, "too early");
    curve.flush().expect("flushed");
    assert_ne!(fs::read(&path).expect("read"), first);
}

/// Shared output of a sink, which the test reads.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn plain_lines_show_the_progress() {
    let out = Shared::default();
    let mut progress = Progress::lines(5000, out.clone(), Duration::from_secs(3600)).starting_at(1199);
    std::thread::sleep(Duration::from_millis(50));
    progress
        .record(&Record::new(1200, 1.2, 0.0).with(TRAIN_LOSS, 2.34119).with(TOKENS_PER_SECOND, 12300.4))
        .expect("ok");
    progress.record(&Record::new(1201, 1.2, 0.0).with(TRAIN_LOSS, 2.3)).expect("ok");
    progress.println("saved step-1201");
    progress.record(&Record::new(1202, 1.2, 0.0).with(EVAL_LOSS, f64::NAN)).expect("ok");
    progress.flush().expect("flushed");
    let text = String::from_utf8(out.0.lock().expect("no panic").clone()).expect("text");
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(lines[0].starts_with("step 1,200/5,000 (24%)  epoch 1.2  loss 2.3412  12,300 tokens/s  "), "{text}");
    assert!(lines[0].ends_with(" left"), "{text}");
    // 3,800 steps at twenty per second. The rate counts steps since the resume only, not the first 1,200.
    assert!(lines[0].contains("m "), "{text}");
    assert_eq!(lines[1], "saved step-1201");
    assert!(lines[2].contains("(24%)  epoch 1.2  loss 2.3000  eval NaN  "), "{text}");
}

#[test]
fn the_last_step_has_one_plain_line() {
    let out = Shared::default();
    let mut progress = Progress::lines(1, out.clone(), Duration::ZERO);
    progress.record(&Record::new(1, 1.0, 0.0).with(TRAIN_LOSS, 2.5).with(TOKENS_PER_SECOND, 300.0)).expect("ok");
    progress.record(&Record::new(1, 1.0, 0.0).with(EVAL_LOSS, 1.5)).expect("ok");
    progress.flush().expect("flushed");
    progress.flush().expect("flushed");
    let text = String::from_utf8(out.0.lock().expect("no panic").clone()).expect("text");
    assert!(text.starts_with("step 1/1 (100%)  epoch 1  loss 2.5000  eval 1.5000  300 tokens/s"), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}

/// For inspection in a terminal: `cargo test --workspace --test log -- --ignored --nocapture`.
#[test]
#[ignore = "for a person to look at, in a terminal"]
fn a_bar() {
    let mut progress = Progress::new(5000).starting_at(1000);
    for step in 1001..=1300 {
        std::thread::sleep(Duration::from_millis(10));
        progress.step(step);
        if step % 20 == 0 {
            progress.record(&record(step).with(TOKENS_PER_SECOND, 12_300.4)).expect("ok");
        }
        if step % 100 == 0 {
            progress.record(&Record::new(step, 1.0, 1.0).with(EVAL_LOSS, 2.5)).expect("ok");
            progress.println(format!("saved step-{step}"));
        }
    }
    progress.flush().expect("flushed");
}

#[test]
fn tables_are_aligned() {
    let rows = [("model", "gpt2"), ("größe", "124M"), ("eval/loss", "3.1")].map(|(a, b)| (a.into(), b.into()));
    assert_eq!(summary_table(&rows), "model      gpt2\ngröße      124M\neval/loss  3.1");
    assert_eq!(summary_table(&[]), "");
    let table = records_table(&[record(5).with(EVAL_LOSS, f64::NAN), record(12_000)], &[]);
    let lines: Vec<_> = table.lines().collect();
    assert_eq!(lines[0], "  step   epoch  eval/loss  train/loss");
    assert_eq!(lines[1], "     5  1.2500        NaN      0.6000");
    assert_eq!(lines[2], "12,000   3,000          -     2.50e-4");
}
