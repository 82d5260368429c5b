//! The tasks and their output.

use grove::models::{
    ModelError,
    bert::{
        BertForMaskedLm, BertForQuestionAnswering,
        tasks::{self, Answer, AnswerOptions, BatchOptions, Entity, Filled},
    },
};
use indicatif::ProgressBar;
use std::{cell::OnceCell, time::Instant};

use crate::{
    bert::texts::texts,
    bert::{Options, Task},
    prelude::*,
    program::progress_bar,
    published::Encoder,
};

/// Does the task.
pub fn run<B: Backend>(options: &Options, device: &B::Device) -> Result<(), Exit> {
    let (texts, places) = texts(options)?;
    let Encoder { path, config, tokenizer } = Encoder::open(options.model.as_deref())?;
    let most = options.max_length.unwrap_or(usize::MAX);
    let bar = match texts.len() <= options.batch_size {
        true => ProgressBar::hidden(),
        false => progress_bar(texts.len(), "{bar:40} {human_pos} of {human_len} texts, {per_sec}, {eta} left"),
    };
    let told = |count: usize| bar.inc(count as u64);
    let batching = BatchOptions {
        batch_size: options.batch_size,
        progress: Some(&told),
        ..BatchOptions::new(&tokenizer, most.min(config.positions()))
    };
    let job =
        Job { options, path: &path, texts: &texts, places: &places, batching, bar: &bar, loaded: OnceCell::new() };
    let mut result = match options.task {
        Task::FillMask => job.fill_mask::<B>(device)?,
        Task::Embed => job.embed::<B>(device)?,
        Task::Similarity => job.similarity::<B>(device)?,
        Task::Classify => job.classify::<B>(device)?,
        Task::Tokens => job.tokens::<B>(device)?,
        Task::Answer => job.answer::<B>(device)?,
    };
    bar.finish_and_clear();
    let seconds = job.loaded.get().map_or(0.0, |loaded| loaded.elapsed().as_secs_f64());
    let rate = texts.len() as f64 / seconds.max(1e-9);
    eprintln!("[{} texts in {seconds:.2} s, {rate:.1} per second]", texts.len());
    if options.json {
        result["seconds"] = json!(seconds);
        write_json(&result)?;
    }
    Ok(())
}

struct Job<'a> {
    options: &'a Options,
    path: &'a Path,
    texts: &'a [String],
    /// Place of each text, such as a line of a file.
    places: &'a [String],
    batching: BatchOptions<'a>,
    bar: &'a ProgressBar,
    /// When the model had been read.
    loaded: OnceCell<Instant>,
}

impl Job<'_> {
    /// Unwraps a result. An error in one of the texts gets its place.
    fn done<T>(&self, result: Result<T, ModelError>) -> Result<T, Exit> {
        result.map_err(|error| match &error {
            ModelError::InText { number, error: inner } => match self.places.get(number.saturating_sub(1)) {
                Some(place) => failure(format!("{place}: {inner}")),
                None => failure(&error),
            },
            _ => failure(&error),
        })
    }

    /// The same of one text by its number from 0.
    fn done_with<T>(&self, text: usize, result: Result<T, ModelError>) -> Result<T, Exit> {
        let error = |error| ModelError::InText { number: text + 1, error: Box::new(error) };
        self.done(result.map_err(error))
    }

    fn dtype(&self) -> Option<grove::tensor::DType> {
        Some(self.options.device.dtype.into())
    }

    /// A model with what its loading reports; the clock begins to run.
    fn model<M, R>(&self, loaded: Result<(M, R), ModelError>) -> Result<M, Exit> {
        let (model, _) = loaded?;
        self.loaded.get_or_init(Instant::now);
        Ok(model)
    }

    /// Prints a text and lines about it, unless there is to be JSON.
    fn say(&self, text: &str, lines: impl IntoIterator<Item = String>) -> Result<(), Exit> {
        self.lines(std::iter::once(text.to_owned()).chain(lines))
    }

    /// Prints lines, unless there is to be JSON.
    fn lines(&self, mut lines: impl Iterator<Item = String>) -> Result<(), Exit> {
        if self.options.json { Ok(()) } else { self.bar.suspend(|| lines.try_for_each(|line| write_line(&line))) }
    }

    fn fill_mask<B: Backend>(&self, device: &B::Device) -> Result<Value, Exit> {
        self.done(tasks::check_masks(self.batching, self.texts))?;
        let model = self.model(BertForMaskedLm::<B>::from_path(self.path, device, self.dtype()))?;
        let filled = self.done(tasks::fill_mask(&model, self.batching, self.texts, self.options.top_k.unwrap_or(5)))?;
        let mut all = vec![];
        for (text, filled) in self.texts.iter().zip(filled) {
            let lines = |place: &Filled| {
                let lines =
                    place.candidates.iter().map(|found| format!("  {:5.1} %  {}", 100.0 * found.score, found.token));
                lines.chain((filled.len() > 1).then(String::new)).collect::<Vec<_>>()
            };
            self.say(text, filled.iter().flat_map(lines))?;
            all.push(json!({ "text": text, "masks": filled }));
        }
        Ok(json!({ "texts": all }))
    }

    fn vectors<B: Backend>(&self, texts: &[String], device: &B::Device) -> Result<Vec<Vec<f32>>, Exit> {
        let encoder = self.model(SentenceEncoder::<B>::from_path(self.path, device, self.dtype()))?;
        let batching = BatchOptions { max_len: self.batching.max_len.min(encoder.max_len), ..self.batching };
        // A query of its own stands before the texts.
        let before = texts.len() - self.texts.len();
        self.done(tasks::embed(&encoder, batching, texts).map_err(|error| match error {
            ModelError::InText { number, error } if number > before => {
                ModelError::InText { number: number - before, error }
            }
            ModelError::InText { error, .. } => *error,
            error => error,
        }))
    }

    fn embed<B: Backend>(&self, device: &B::Device) -> Result<Value, Exit> {
        let vectors = self.vectors::<B>(self.texts, device)?;
        for (text, vector) in self.texts.iter().zip(&vectors) {
            let begin: Vec<String> = vector.iter().take(6).map(|x| format!("{x:.4}")).collect();
            self.say(text, [format!("  [{}, …] ({} numbers; --json has all)", begin.join(", "), vector.len())])?;
        }
        Ok(json!({ "texts": self.texts, "embeddings": vectors }))
    }

    fn similarity<B: Backend>(&self, device: &B::Device) -> Result<Value, Exit> {
        let (query, texts) = match &self.options.query {
            Some(query) => (query, self.texts),
            None => (&self.texts[0], &self.texts[1..]),
        };
        if texts.is_empty() {
            return Err(Exit::Usage("similarity needs at least two texts, or --query and one".into()));
        }
        let all: Vec<String> = std::iter::once(query).chain(texts).cloned().collect();
        let vectors = self.vectors::<B>(&all, device)?;
        let mut order = tasks::rank_by_similarity(&vectors[0], &vectors[1..]);
        order.truncate(self.options.top_k.unwrap_or(usize::MAX));
        self.say(query, order.iter().map(|&(i, score)| format!("  {score:6.3}  {}", texts[i])))?;
        let similar = order.iter().map(|&(i, score)| json!({ "index": i, "text": texts[i], "score": score }));
        Ok(json!({ "query": query, "similar": similar.collect::<Vec<_>>() }))
    }

    fn classify<B: Backend>(&self, device: &B::Device) -> Result<Value, Exit> {
        let model = self.model(BertForSequenceClassification::<B>::from_path(self.path, device, self.dtype()))?;
        let pairs = self.texts.iter().map(|text| text.split_once('\t').map_or((&**text, None), |(a, b)| (a, Some(b))));
        let pairs: Vec<(&str, Option<&str>)> = pairs.collect();
        let labelled = self.done(tasks::classify(&model, self.batching, &pairs))?;
        let mut all = vec![];
        for (text, labels) in self.texts.iter().zip(&labelled) {
            let labels = &labels[..labels.len().min(self.options.top_k.unwrap_or(usize::MAX))];
            self.say(text, labels.iter().map(|label| format!("  {:6.3}  {}", label.score, label.label)))?;
            all.push(json!({ "text": text, "labels": labels }));
        }
        Ok(json!({ "texts": all }))
    }

    fn tokens<B: Backend>(&self, device: &B::Device) -> Result<Value, Exit> {
        let model = self.model(BertForTokenClassification::<B>::from_path(self.path, device, self.dtype()))?;
        let batching = BatchOptions { progress: None, ..self.batching };
        let mut all = vec![];
        for (i, text) in self.texts.iter().enumerate() {
            let found = self.done_with(i, tasks::entities(&model, batching, text, self.options.stride))?;
            self.bar.inc(1);
            let line = |part: &Entity| format!("  {:5.1} %  {:8}  {}", 100.0 * part.score, part.label, part.text);
            self.say(text, found.iter().map(line))?;
            all.push(json!({ "text": text, "entities": found }));
        }
        Ok(json!({ "texts": all }))
    }

    fn answer<B: Backend>(&self, device: &B::Device) -> Result<Value, Exit> {
        let model = self.model(BertForQuestionAnswering::<B>::from_path(self.path, device, self.dtype()))?;
        let question = self.options.question.as_deref().unwrap_or_default();
        let asked = AnswerOptions {
            top_k: self.options.top_k.unwrap_or(1),
            stride: self.options.stride,
            ..AnswerOptions::default()
        };
        let batching = BatchOptions { progress: None, ..self.batching };
        let mut all = vec![];
        for (i, text) in self.texts.iter().enumerate() {
            let answers = self.done_with(i, tasks::answer(&model, batching, question, text, &asked))?;
            self.bar.inc(1);
            let line = |answer: &Answer| format!("{:5.1} %  {}", 100.0 * answer.score, answer.text);
            self.lines(answers.iter().map(line))?;
            all.push(json!({ "text": text, "answers": answers }));
        }
        Ok(json!({ "question": question, "texts": all }))
    }
}
