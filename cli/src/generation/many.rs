//! Continuation of the prompts of a file.

use grove::{
    tasks::generation::{Finish, TextStream, check_prompt, generate_many},
    train::data::{Columns, read_texts},
};
use std::{cell::Cell, ffi::OsStr, time::Instant};

use super::{GenerationArgs, speak::reason};
use crate::{
    bert::{Texts, lines_of_file},
    labelled::is_table,
    prelude::*,
    program::{progress_bar, write_csv},
    training::need,
};

/// Number of prompts that are continued together, without the option.
const BATCH_SIZE: usize = 16;

/// Prompts of a file.
#[derive(Args, Debug)]
pub struct FileArgs {
    /// Continue the prompts of this file: one per line, or a column of a .csv, .tsv, .jsonl or .parquet file
    ///
    /// The text of a prompt does not depend on the other prompts. Its random numbers depend on --seed and on its index.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = [
            "text", "prompt", "prompt_ids", "samples", "repeat", "jit", "score", "draft", "summary"
        ],
        help_heading = "Prompts of a file"
    )]
    pub file: Option<PathBuf>,

    /// Column (or JSON field) of the prompts: a name, or a number from 1 [default: text]
    #[arg(long, value_name = "NAME", requires = "file", help_heading = "Prompts of a file")]
    pub text_column: Option<String>,

    /// Number of prompts that are continued at the same time; the next ones enter the batch as others end [default: 16]
    #[arg(long, value_name = "N", requires = "file", help_heading = "Prompts of a file")]
    pub batch_size: Option<usize>,

    /// Write the prompts with their texts to this file, .jsonl or .csv, instead of printing them
    #[arg(long, value_name = "FILE", requires = "file", help_heading = "Prompts of a file")]
    pub output: Option<PathBuf>,
}

impl FileArgs {
    /// Checks the options alone, before any file is read.
    pub fn check(&self) -> Result<(), Exit> {
        let of_file = [
            ("text-column", self.text_column.is_some()),
            ("batch-size", self.batch_size.is_some()),
            ("output", self.output.is_some()),
        ];
        need("file", self.file.is_some(), of_file)?;
        at_least_one([("batch-size", self.batch_size())])?;
        if let (Some(file), Some(_)) = (self.file.as_ref().filter(|file| !is_table(file)), &self.text_column) {
            let named = file.display();
            return Err(usage(format!(
                "--text-column: {named} has no columns, since each line is a prompt; leave the option out"
            )));
        }
        match &self.output {
            Some(file) if !matches!(extension(file), Some("jsonl" | "csv")) => {
                Err(usage(format!("--output is {}; give a name that ends in .jsonl or .csv", file.display())))
            }
            _ => Ok(()),
        }
    }

    /// Maximum number of prompts that are continued at the same time.
    fn batch_size(&self) -> usize {
        self.batch_size.unwrap_or(BATCH_SIZE)
    }

    /// Reads the prompts, each with its location.
    fn read(&self, file: &Path) -> Result<Texts, Exit> {
        if !is_table(file) {
            return lines_of_file(file);
        }
        let text = self.text_column.clone().unwrap_or_else(|| "text".into());
        let columns = Columns { text, ..Columns::default() };
        let rows = read_texts(file, &columns)?.texts;
        Ok(Texts { texts: rows.into_iter().map(|row| (row.text, row.place.to_string())).collect(), skipped: None })
    }
}

/// Returns the extension of a file, which is the format of the output.
fn extension(file: &Path) -> Option<&str> {
    file.extension().and_then(OsStr::to_str)
}

/// A prompt with its continuation.
struct Continued {
    place: String,
    prompt: String,
    text: String,
    generated: Generated,
}

impl Continued {
    fn object(&self) -> Value {
        let Generated { ids, finish } = &self.generated;
        json!({ "prompt": self.prompt, "text": self.text, "tokens": ids.len(), "finish": reason(*finish) })
    }
}

/// Continues the prompts of a file. `load` loads a model; its arguments are the number of tokens of the longest prompt and the
/// number of prompts that are continued at the same time.
pub fn continue_file<B: Backend, M: CausalLm<B>>(
    options: &GenerationArgs,
    (args, file): (&FileArgs, &Path),
    files: &ModelFiles,
    load: impl FnOnce(usize, usize) -> Result<M, Exit>,
) -> Result<(), Exit> {
    let tokenizer = Tokenizer::beside(files.tokenizer())?;
    let Texts { texts, skipped } = args.read(file)?;
    let at = |place: &str, error: ModelError| failure(format!("{place}: {error}"));
    let encode = |(text, place): &(String, String)| tokenizer.encode(text).map_err(|error| at(place, error.into()));
    let ids = texts.iter().map(encode).collect::<Result<Vec<_>, _>>()?;
    let batch_size = args.batch_size().min(ids.len());
    let settings = GenerateOptions { batch_size: Some(batch_size), ..options.settings(files)? };
    let begun = Instant::now();
    let model = load(ids.iter().map(Vec::len).max().unwrap_or(0), batch_size)?;
    for (ids, (_, place)) in ids.iter().zip(&texts) {
        check_prompt(&model, ids).map_err(|error| at(place, error))?;
    }
    let load_seconds = begun.elapsed().as_secs_f64();

    let stream = |ids: &Vec<u32>| TextStream::after(&tokenizer, &settings.stop_strings, ids);
    let mut streams: Vec<TextStream<'_>> = ids.iter().map(stream).collect();
    let bar = progress_bar(ids.len(), "prompts");
    let (begun, count, mut broken) = (Instant::now(), Cell::new(0usize), None);
    let speed = || count.get() as f64 / begun.elapsed().as_secs_f64().max(f64::MIN_POSITIVE);
    let on_token = |row: usize, token| {
        count.set(count.get() + 1);
        if broken.is_none() {
            broken = streams[row].push(token).err();
        }
        broken.is_none() && !streams[row].stopped()
    };
    let on_end = |_, _: &Generated| {
        bar.inc(1);
        bar.set_message(format!(", {:.1} tokens per second", speed()));
    };
    let generated = generate_many(&model, &ids, &settings, on_token, on_end)?;
    if let Some(error) = broken {
        return Err(error.into());
    }
    let (seconds, tokens_per_second) = (begun.elapsed().as_secs_f64(), speed());
    bar.finish_and_clear();
    let mut all = Vec::with_capacity(texts.len());
    for (((prompt, place), mut stream), generated) in texts.into_iter().zip(streams).zip(generated) {
        stream.finish()?;
        all.push(Continued { place, prompt, text: stream.text().to_owned(), generated });
    }
    let object = json!({
        "prompts": all.len(),
        "tokens": count.get(),
        "tokens_per_second": tokens_per_second,
        "seconds": seconds,
        "load_seconds": load_seconds,
    });
    write_texts(args.output.as_deref(), &all, options.json, object)?;
    if let Some(note) = skipped {
        eprintln!("{note}");
    }
    if !options.json {
        let full = all.iter().filter(|text| text.generated.finish == Finish::Context).count();
        let cut = match full {
            0 => String::new(),
            _ => format!(", {} cut because the model's context is full", counted(full, "text")),
        };
        let (prompts, tokens) = (counted(all.len(), "prompt"), counted(count.get(), "token"));
        eprintln!(
            "[{prompts}, {tokens}{cut}; loaded in {load_seconds:.2} s, {tokens_per_second:.1} tokens per second]"
        );
    }
    Ok(())
}

/// Writes texts to the file `output`, or prints them. `object` has the statistics of the JSON form.
fn write_texts(output: Option<&Path>, all: &[Continued], json: bool, mut object: Value) -> Result<(), Exit> {
    if let Some(output) = output {
        write_output(output, all)?;
        object["output"] = json!(output);
        let written = format!("{} has {}", output.display(), counted(all.len(), "text"));
        return report(json, &object, &written).map(drop);
    }
    if json {
        object["texts"] = all.iter().map(Continued::object).collect();
        return write_json(&object);
    }
    let print =
        |Continued { place, prompt, text, .. }: &Continued| write_line(&format!("--- {place} ---\n{prompt}{text}"));
    all.iter().try_for_each(print)
}

/// Writes texts to a file, in the format of its extension.
fn write_output(file: &Path, all: &[Continued]) -> Result<(), Exit> {
    if extension(file) == Some("csv") {
        let row = |Continued { prompt, text, generated: Generated { ids, finish }, .. }: &Continued| {
            vec![prompt.clone(), text.clone(), ids.len().to_string(), reason(*finish).into()]
        };
        return write_csv(file, ["prompt", "text", "tokens", "finish"], all.iter().map(row));
    }
    Ok(grove::files::write_atomically(file, |writer| {
        all.iter().try_for_each(|text| writeln!(writer, "{}", text.object()))
    })?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generation::GenerateCommand;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        command: GenerateCommand,
    }

    const MODEL: &str = "../models/tests/fixtures/gpt2/tiny_text";

    fn parse(words: &[&str]) -> Result<GenerateCommand, clap::Error> {
        Words::try_parse_from([&["generate", "--model", MODEL], words].concat()).map(|words| words.command)
    }

    fn run(words: &[&str]) -> Result<Ended, Exit> {
        parse(words).expect("options").run::<Flex>(&Default::default())
    }

    fn word(path: &Path) -> &str {
        path.to_str().expect("UTF-8")
    }

    #[test]
    fn each_prompt_is_continued_as_if_it_were_alone() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = |name| directory.path().join(name);
        let [lines, records, single, many, table] =
            ["prompts.txt", "prompts.jsonl", "single.jsonl", "many.jsonl", "many.csv"].map(path);
        let prompts =
            ["The old tree", "a", "The letter was written by her sister, who", "In \"spring\", they", "The old"];
        std::fs::write(&lines, prompts.join("\n\n")).expect("written");
        let objects = prompts.map(|prompt| format!("{}\n", json!({ "say": prompt })));
        std::fs::write(&records, objects.concat()).expect("written");
        let common = ["--max-new-tokens", "12", "--ignore-eos", "--json"];
        let continue_in = |words: &[&str]| {
            let ended = run(&[&common[..], words].concat());
            assert!(matches!(ended, Ok(Ended::Finished)), "{:?}", ended.err());
        };
        let read = |file: &Path| std::fs::read_to_string(file).expect("a file");
        let greedy = ["--temperature", "0"];
        let (stopped, sampled) = (["--temperature", "0", "--stop", "e"], ["--temperature", "1", "--seed", "3"]);
        for options in [&stopped[..], &sampled, &greedy] {
            let file = [options, &["--file", word(&lines)]].concat();
            continue_in(&[&file[..], &["--batch-size", "1", "--output", word(&single)]].concat());
            continue_in(&[&file[..], &["--batch-size", "3", "--output", word(&many)]].concat());
            assert_eq!(read(&many), read(&single), "{options:?}");
            assert_eq!(read(&many).contains("stop_string"), options.contains(&"--stop"), "{}", read(&many));
        }

        let tokenizer = Tokenizer::beside(MODEL).expect("a tokenizer");
        let model = Gpt2::<Flex>::from_pretrained(MODEL, &Default::default()).expect("a model");
        let options = GenerateOptions {
            max_new_tokens: 12,
            sampling: Sampling::greedy(),
            ignore_eos: true,
            ..GenerateOptions::default()
        };
        for (line, prompt) in read(&many).lines().zip(prompts) {
            let found: Value = serde_json::from_str(line).expect("JSON");
            let ids = tokenizer.encode(prompt).expect("tokens");
            let expected = model.generate(std::slice::from_ref(&ids), &options).expect("text").remove(0).ids;
            let mut stream = TextStream::after(&tokenizer, &[], &ids);
            let pieces: String = expected.iter().map(|&id| stream.push(id).expect("text")).collect();
            assert_eq!(found["text"], pieces + &stream.finish().expect("text"));
            assert_eq!(
                (&found["prompt"], &found["tokens"], &found["finish"]),
                (&prompt.into(), &12.into(), &"length".into())
            );
        }

        continue_in(
            &[&greedy[..], &["--file", word(&records), "--text-column", "say", "--output", word(&table)]].concat(),
        );
        let mut rows = csv::Reader::from_path(&table).expect("a table");
        assert_eq!(rows.headers().expect("a header"), vec!["prompt", "text", "tokens", "finish"]);
        let texts: Vec<String> = rows.records().map(|row| row.expect("a row")[1].to_owned()).collect();
        let text =
            |line| serde_json::from_str::<Value>(line).expect("JSON")["text"].as_str().expect("a text").to_owned();
        assert_eq!(texts, read(&many).lines().map(text).collect::<Vec<_>>());
    }

    #[test]
    fn errors_name_the_line_or_the_file() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("prompts.txt");
        let error = |content: &[u8], words: &[&str]| {
            std::fs::write(&file, content).expect("written");
            match run(&[&["--file", word(&file)], words].concat()) {
                Err(Exit::Failure(message)) => message,
                other => panic!("{other:?}"),
            }
        };
        let long = format!("short\n\n{}\n", "The old apple tree ".repeat(100));
        let message = error(long.as_bytes(), &[]);
        assert!(message.contains("prompts.txt, line 3: ") && message.contains("context is 96"), "{message}");
        let message = error(b"one\ntwo \xff\n", &[]);
        assert!(message.contains("prompts.txt, line 2: byte 5 is not UTF-8"), "{message}");
        let message = error(b"\n \n", &[]);
        assert!(message.contains("prompts.txt has no text"), "{message}");
        std::fs::remove_file(&file).expect("removed");
        let Err(Exit::Failure(message)) = run(&["--file", word(&file)]) else { panic!("there is no file") };
        assert!(message.contains("cannot read") && message.contains("prompts.txt"), "{message}");
    }

    #[test]
    fn rejects_options_that_do_not_belong_together() {
        for other in [
            "a text",
            "--prompt=a",
            "--prompt-ids=1",
            "--samples=2",
            "--repeat=2",
            "--jit",
            "--score",
            "--draft=m",
            "--summary",
        ] {
            let error = parse(&["--file", "prompts.txt", other]).err();
            assert_eq!(error.map(|error| error.kind()), Some(clap::error::ErrorKind::ArgumentConflict), "{other}");
        }
        let usage = |words: &[&str]| match parse(words).map(|command| command.check()) {
            Ok(Err(Exit::Usage(message))) => message,
            Ok(_) => panic!("{words:?} are refused"),
            Err(error) => error.to_string(),
        };
        let lines = ["--file", "prompts.txt"];
        for option in ["--batch-size=2", "--output=a.csv", "--text-column=a"] {
            // clap waives `requires` beside an option that excludes the needed one.
            for words in [&[option][..], &[option, "a text"], &[option, "--score", "a text"]] {
                assert!(usage(words).contains("--file"), "{words:?}: {}", usage(words));
            }
        }
        assert!(usage(&[&lines[..], &["--batch-size", "0"]].concat()).contains("--batch-size is 0"));
        assert!(usage(&[&lines[..], &["--output", "texts.txt"]].concat()).contains(".jsonl or .csv"));
        assert!(usage(&[&lines[..], &["--text-column", "a"]].concat()).contains("prompts.txt has no columns"));
        assert!(parse(&["--file", "prompts.tsv", "--text-column", "a"]).is_ok_and(|command| command.check().is_ok()));
    }
}
