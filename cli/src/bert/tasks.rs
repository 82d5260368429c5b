//! BERT's tasks and their output.

use grove::{
    models::{
        bert::{BertForMaskedLm, BertForQuestionAnswering, Similarity},
        vision::Prediction,
    },
    tasks::text::{self as tasks, Answer, AnswerOptions, BatchOptions, Candidate, Entity, Filled},
};
use indicatif::ProgressBar;
use serde::Serialize;
use std::{cell::OnceCell, time::Instant};

use super::{
    Encoder, Task, TextArgs,
    texts::{Texts, located, texts},
};
use crate::{
    kind::{check_head, other_task},
    prelude::*,
    program::{progress_bar, tell_small},
};

impl Task {
    /// Returns the name of the task for which a model needs a head.
    fn head(&self) -> Option<&'static str> {
        match self {
            Self::FillMask { .. } => Some("fill-mask"),
            Self::Classify { .. } => Some("classify"),
            Self::Tokens { .. } => Some("tokens"),
            Self::Answer { .. } => Some("answer"),
            Self::Embed { .. } | Self::Similarity { .. } => None,
        }
    }
}

impl TextArgs {
    /// Checks the options alone, before any file is read.
    pub(crate) fn check(&self, task: &Task) -> Result<DeviceSpec, Exit> {
        let top_k = match task {
            Task::FillMask { top_k } | Task::Answer { options: AnswerOptions { top_k, .. }, .. } => Some(*top_k),
            Task::Similarity { top_k, .. } | Task::Classify { top_k } => *top_k,
            Task::Embed { .. } | Task::Tokens { .. } => None,
        };
        let (top_k, max_length) = (top_k.unwrap_or(1), self.max_length.unwrap_or(1));
        at_least_one([("batch-size", self.batch_size), ("top-k", top_k), ("max-length", max_length)])?;
        self.inference.device.spec()
    }

    /// Runs a task.
    pub(super) fn run<B: Backend>(&self, task: &Task, device: &B::Device) -> Result<Ended, Exit> {
        let Texts { texts, skipped } = texts(self, task)?;
        let (texts, places): (Vec<_>, Vec<_>) = texts.into_iter().unzip();
        let Encoder { path, files, config, tokenizer } =
            Encoder::open(self.model.as_deref(), self.inference.adapter.as_deref())?;
        let usual = if matches!(task, Task::Answer { .. }) { 384 } else { usize::MAX };
        let most = self.max_length.unwrap_or(usual);
        if let Some(task) = task.head() {
            check_head(&path, task)?;
        }
        let bar = match texts.len() <= self.batch_size {
            true => ProgressBar::hidden(),
            false => progress_bar(texts.len(), "texts"),
        };
        let count_texts = |count: usize| bar.inc(count as u64);
        let batching = BatchOptions {
            batch_size: self.batch_size,
            progress: Some(&count_texts),
            ..BatchOptions::new(&tokenizer, most.min(config.positions()))
        };
        let job = Job {
            options: self,
            task,
            path: &path,
            files: &files,
            texts: &texts,
            places: &places,
            batching,
            bar: &bar,
            loaded: OnceCell::new(),
        };
        let result = match task {
            Task::FillMask { top_k } => job.fill_mask::<B>(*top_k, device),
            Task::Embed { prompt_name, output } => job.embed::<B>(prompt_name.as_deref(), output.as_deref(), device),
            Task::Similarity { query, top_k, prompt_name } => {
                job.similarity::<B>(query.as_ref(), *top_k, prompt_name.as_deref(), device)
            }
            Task::Classify { top_k } => job.classify::<B>(*top_k, device),
            Task::Tokens { stride } => job.tokens::<B>(*stride, device),
            Task::Answer { question, options } => job.answer::<B>(question, options, device),
        };
        let of_head = || other_task(&path, task.head()?);
        let mut result = result.map_err(|error| of_head().unwrap_or(error))?;
        bar.finish_and_clear();
        let seconds = job.loaded.get().map_or(0.0, |loaded| loaded.elapsed().as_secs_f64());
        let rate = texts.len() as f64 / seconds.max(1e-9);
        eprintln!("[{} in {seconds:.2} s, {rate:.1} per second]", counted(texts.len(), "text"));
        if let Some(note) = skipped {
            eprintln!("{note}");
        }
        if self.inference.json {
            result["seconds"] = json!(seconds);
            write_json(&result)?;
        } else if self.model.is_none() {
            tell_small("model", "google-bert/bert-base-uncased");
        }
        Ok(Ended::Finished)
    }
}

struct Job<'a> {
    options: &'a TextArgs,
    task: &'a Task,
    path: &'a Path,
    files: &'a ModelFiles,
    texts: &'a [String],
    /// Location of each text, such as a line of a file.
    places: &'a [String],
    batching: BatchOptions<'a>,
    bar: &'a ProgressBar,
    /// Time at which the model was loaded.
    loaded: OnceCell<Instant>,
}

impl Job<'_> {
    /// Converts the error of a result. An error in one of the texts gets the location of the text.
    fn done<T>(&self, result: Result<T, ModelError>) -> Result<T, Exit> {
        result.map_err(|error| located(&error, self.places))
    }

    /// Loads the model and starts the timer.
    fn load<B: Backend, M: Pretrained<B>>(&self, device: &B::Device) -> Result<M, Exit> {
        let (model, _) = self.files.load::<B, M>(device, self.options.inference.dtype())?;
        self.loaded.get_or_init(Instant::now);
        Ok(model)
    }

    /// Runs a task on one text at a time, each split into windows if it is long.
    fn each<T>(
        &self,
        task: impl Fn(BatchOptions<'_>, &str) -> Result<T, ModelError>,
    ) -> impl Iterator<Item = Result<T, Exit>> {
        let batching = BatchOptions { progress: None, ..self.batching };
        self.texts.iter().enumerate().map(move |(i, text)| {
            let in_text = |error| ModelError::InText { number: i + 1, error: Box::new(error) };
            let found = self.done(task(batching, text).map_err(in_text))?;
            self.bar.inc(1);
            Ok(found)
        })
    }

    /// Prints the results of each text as lines. Returns them as JSON, under the name `key`.
    fn tell<T: Serialize>(
        &self,
        key: &str,
        found: impl IntoIterator<Item = Result<T, Exit>>,
        lines: impl Fn(&T) -> Vec<String>,
    ) -> Result<Value, Exit> {
        let tell = |(text, found): (&String, Result<T, Exit>)| {
            let found = found?;
            self.say(text, lines(&found))?;
            Ok(json!({ "text": text, key: found }))
        };
        self.texts.iter().zip(found).map(tell).collect()
    }

    /// Prints a text, which answers omit, and lines about it. Prints nothing with `--json`.
    fn say(&self, text: &str, lines: impl IntoIterator<Item = String>) -> Result<(), Exit> {
        let text = (!matches!(self.task, Task::Answer { .. })).then(|| text.to_owned());
        let mut lines = text.into_iter().chain(lines);
        if self.options.inference.json {
            Ok(())
        } else {
            self.bar.suspend(|| lines.try_for_each(|line| write_line(&line)))
        }
    }

    fn fill_mask<B: Backend>(&self, top_k: usize, device: &B::Device) -> Result<Value, Exit> {
        self.done(tasks::check_masks(self.batching, self.texts))?;
        let model: BertForMaskedLm<B> = self.load(device)?;
        let filled = self.done(tasks::fill_mask(&model, self.batching, self.texts, top_k))?;
        let line = |found: &Candidate| format!("  {:5.1} %  {}", 100.0 * found.score, found.token);
        let lines = |filled: &Vec<Filled>| {
            let blank = || (filled.len() > 1).then(String::new);
            filled.iter().flat_map(|place| place.candidates.iter().map(line).chain(blank())).collect()
        };
        Ok(json!({ "texts": self.tell("masks", filled.into_iter().map(Ok), lines)? }))
    }

    /// Returns the vectors of texts and the similarity function they were trained for.
    fn vectors<B: Backend>(
        &self,
        texts: &[String],
        prompt_name: Option<&str>,
        device: &B::Device,
    ) -> Result<(Vec<Vec<f32>>, Similarity), Exit> {
        let (mut encoder, _) = SentenceEncoder::<B>::from_path(self.path, device, self.options.inference.dtype())?;
        self.loaded.get_or_init(Instant::now);
        if let Some(adapter) = self.options.inference.adapter.as_deref().and(self.files.adapter()) {
            encoder = self.done(encoder.with_adapter(adapter))?;
        }
        let batching = BatchOptions { max_len: self.batching.max_len.min(encoder.max_len), ..self.batching };
        // `texts` begins with the query, if there is one, so positions in errors are shifted.
        let before = texts.len() - self.texts.len();
        let prompt = encoder.prompt(prompt_name)?;
        let vectors =
            self.done(tasks::embed_after(&encoder, batching, prompt, texts).map_err(|error| match error {
                ModelError::InText { number, error } if number > before => {
                    ModelError::InText { number: number - before, error }
                }
                ModelError::InText { error, .. } => *error,
                error => error,
            }))?;
        Ok((vectors, encoder.similarity))
    }

    fn embed<B: Backend>(
        &self,
        prompt_name: Option<&str>,
        output: Option<&Path>,
        device: &B::Device,
    ) -> Result<Value, Exit> {
        let (vectors, _) = self.vectors::<B>(self.texts, prompt_name, device)?;
        if let Some(file) = output {
            let width = vectors.first().map_or(0, Vec::len);
            grove::weights::write_npy(file, &[vectors.len(), width], &vectors.concat())?;
            let (count, file) = (counted(vectors.len(), "vector"), file.display());
            eprintln!("{file} has {count} of {width} numbers");
            return Ok(json!({ "texts": self.texts, "shape": [vectors.len(), width], "output": file.to_string() }));
        }
        for (text, vector) in self.texts.iter().zip(&vectors) {
            let begin: Vec<String> = vector.iter().take(6).map(|x| format!("{x:.4}")).collect();
            self.say(text, [format!("  [{}, …] ({} numbers; --json has all)", begin.join(", "), vector.len())])?;
        }
        Ok(json!({ "texts": self.texts, "embeddings": vectors }))
    }

    fn similarity<B: Backend>(
        &self,
        query: Option<&String>,
        top_k: Option<usize>,
        prompt_name: Option<&str>,
        device: &B::Device,
    ) -> Result<Value, Exit> {
        let (query, texts) = match query {
            Some(query) => (query, self.texts),
            None => (&self.texts[0], &self.texts[1..]),
        };
        if texts.is_empty() {
            return Err(usage("similarity needs at least two texts, or --query and one"));
        }
        let all: Vec<String> = std::iter::once(query).chain(texts).cloned().collect();
        let (vectors, kind) = self.vectors::<B>(&all, prompt_name, device)?;
        let mut order = tasks::rank_by_similarity(&vectors[0], &vectors[1..], kind);
        order.truncate(top_k.unwrap_or(usize::MAX));
        self.say(query, order.iter().map(|&(i, score)| format!("  {score:6.3}  {}", texts[i])))?;
        let similar = order.iter().map(|&(i, score)| json!({ "index": i, "text": texts[i], "score": score }));
        Ok(json!({ "query": query, "similar": similar.collect::<Vec<_>>() }))
    }

    fn classify<B: Backend>(&self, top_k: Option<usize>, device: &B::Device) -> Result<Value, Exit> {
        let model: BertForSequenceClassification<B> = self.load(device)?;
        let pairs = self.texts.iter().map(|text| text.split_once('\t').map_or((&**text, None), |(a, b)| (a, Some(b))));
        let pairs: Vec<(&str, Option<&str>)> = pairs.collect();
        let mut labelled = self.done(tasks::classify(&model, self.batching, &pairs))?;
        labelled.iter_mut().for_each(|labels| labels.truncate(top_k.unwrap_or(usize::MAX)));
        let line = |label: &Prediction| format!("  {:6.3}  {}", label.score, label.label);
        let lines = |labels: &Vec<Prediction>| labels.iter().map(line).collect();
        Ok(json!({ "texts": self.tell("labels", labelled.into_iter().map(Ok), lines)? }))
    }

    fn tokens<B: Backend>(&self, stride: usize, device: &B::Device) -> Result<Value, Exit> {
        let model: BertForTokenClassification<B> = self.load(device)?;
        let found = self.each(|batching, text| tasks::entities(&model, batching, text, stride));
        let line = |part: &Entity| format!("  {:5.1} %  {:8}  {}", 100.0 * part.score, part.label, part.text);
        let lines = |found: &Vec<Entity>| found.iter().map(line).collect();
        Ok(json!({ "texts": self.tell("entities", found, lines)? }))
    }

    fn answer<B: Backend>(&self, question: &str, options: &AnswerOptions, device: &B::Device) -> Result<Value, Exit> {
        let model: BertForQuestionAnswering<B> = self.load(device)?;
        let found = self.each(|batching, text| tasks::answer(&model, batching, question, text, options));
        let line = |answer: &Answer| format!("{:5.1} %  {}", 100.0 * answer.score, answer.text);
        let all = self.tell("answers", found, |answers: &Vec<Answer>| answers.iter().map(line).collect())?;
        Ok(json!({ "question": question, "texts": all }))
    }
}
