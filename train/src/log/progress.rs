//! Display of progress during a run.

use std::fmt::Write as _;
use std::io::Write;
use std::time::{Duration, Instant};

use indicatif::{HumanCount, HumanFloatCount, ProgressBar, ProgressFinish, ProgressState, ProgressStyle};

use crate::log::table::number;
use crate::log::{EVAL_LOSS, LEARNING_RATE, LogError, Record, Sink, TRAIN_LOSS};

/// A progress bar on standard error, with the losses, the rate and the time left:
///
/// ```text
///  24% ━━━━━━━━━━━╸━━━━━━━━━━━━━━━ 1,200/5,000  loss 2.3412  eval 2.4021  12,300 tokens/s  4m 12s left
/// ```
///
/// If standard error is not a terminal, it prints a plain line every thirty seconds instead.
pub struct Progress {
    bar: ProgressBar,
    plain: Option<Plain>,
    losses: [(&'static str, Option<f64>); 2],
    /// The last measured rate and its unit; records of an evaluation have none.
    rate: Option<(String, f64)>,
}

/// Lines for readers that are no terminal.
struct Plain {
    out: Box<dyn Write + Send>,
    every: Duration,
    written: Option<Instant>,
    /// The line of the last record, if it was not written.
    pending: Option<String>,
}

impl Progress {
    /// A bar for a run of so many steps in all.
    pub fn new(steps: u64) -> Self {
        let bar = ProgressBar::new(steps);
        let plain = bar.is_hidden().then(|| Plain::new(Box::new(std::io::stderr()), Duration::from_secs(30)));
        Self::with(bar, plain)
    }

    /// Plain lines at most this often, whatever standard error is, to `out`.
    pub fn lines(steps: u64, out: impl Write + Send + 'static, every: Duration) -> Self {
        let bar = ProgressBar::hidden();
        bar.set_length(steps);
        Self::with(bar, Some(Plain::new(Box::new(out), every)))
    }

    fn with(bar: ProgressBar, plain: Option<Plain>) -> Self {
        let template = "{percent:>3}% {wide_bar:.green/black.bright} {human_pos}/{human_len}{msg}  {left:.dim}";
        // The template is a constant, and a test draws with it.
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let left = |state: &ProgressState, out: &mut dyn std::fmt::Write| {
            let _ = match state.is_finished() {
                true => write!(out, "{}", span(state.elapsed())),
                false => write!(out, "{}", time_left(state.per_sec(), state.eta())),
            };
        };
        bar.set_style(style.progress_chars("━╸━").with_key("left", left));
        // The last state stays on the screen, also if the run ends early.
        let bar = bar.with_finish(ProgressFinish::Abandon);
        Self { bar, plain, losses: [("loss", None), ("eval", None)], rate: None }
    }

    /// For a run that resumes after this step: rate and time left count from here.
    pub fn starting_at(mut self, step: u64) -> Self {
        self.bar = self.bar.with_position(step);
        // The estimator must learn of the position before it forgets how fast that was.
        self.bar.tick();
        self.bar.reset_eta();
        self
    }

    /// Moves the bar to this step, between records.
    pub fn step(&mut self, step: u64) {
        self.bar.set_position(step);
    }

    /// Prints a line above the bar.
    pub fn println(&mut self, line: impl AsRef<str>) {
        match &mut self.plain {
            Some(plain) => plain.write(line.as_ref()),
            None => self.bar.println(line),
        }
    }

    /// Removes the bar while `work` writes to the terminal, and draws it again.
    pub fn suspend<T>(&self, work: impl FnOnce() -> T) -> T {
        self.bar.suspend(work)
    }

    /// Losses and rate, each with two spaces before it.
    fn message(&self) -> String {
        let mut message = String::new();
        for (name, loss) in &self.losses {
            if let Some(loss) = loss {
                let _ = write!(message, "  {name} {}", number(*loss));
            }
        }
        let (unit, rate) = self.rate.as_ref().map_or(("steps", self.bar.per_sec()), |(unit, rate)| (unit, *rate));
        if rate.is_finite() && rate > 0.0 {
            let rate = if rate < 100.0 { format!("{rate:.3}") } else { HumanCount(rate.round() as u64).to_string() };
            let _ = write!(message, "  {rate} {unit}/s");
        }
        message
    }

    /// A whole line, where there is no bar.
    fn line(&self, record: &Record) -> String {
        let steps = self.bar.length().unwrap_or(0);
        let percent = record.step.saturating_mul(100).checked_div(steps).unwrap_or(100);
        let (step, steps) = (HumanCount(record.step), HumanCount(steps));
        let mut line = format!("step {step}/{steps} ({percent}%)  epoch {}", HumanFloatCount(record.epoch));
        line.push_str(&self.message());
        if let Some(rate) = record.get(LEARNING_RATE) {
            let _ = write!(line, "  learning rate {}", number(rate));
        }
        let _ = write!(line, "  {}", time_left(self.bar.per_sec(), self.bar.eta()));
        line
    }
}

impl Sink for Progress {
    fn record(&mut self, record: &Record) -> Result<(), LogError> {
        for ((_, loss), name) in self.losses.iter_mut().zip([TRAIN_LOSS, EVAL_LOSS]) {
            *loss = record.get(name).or(*loss);
        }
        let measured = |(name, rate): (&String, &f64)| Some((name.strip_suffix("_per_second")?.into(), *rate));
        self.rate = record.values.iter().find_map(measured).or(self.rate.take());
        self.bar.set_position(record.step);
        if self.plain.is_none() {
            self.bar.set_message(self.message());
            return Ok(());
        }
        let line = self.line(record);
        if let Some(plain) = &mut self.plain {
            plain.pending = Some(line);
            if plain.written.is_none_or(|written| written.elapsed() >= plain.every) {
                plain.flush();
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), LogError> {
        self.bar.tick();
        if let Some(plain) = &mut self.plain {
            plain.flush();
        }
        Ok(())
    }
}

impl Plain {
    fn new(out: Box<dyn Write + Send>, every: Duration) -> Self {
        Self { out, every, written: None, pending: None }
    }

    fn flush(&mut self) {
        if let Some(line) = self.pending.take() {
            self.write(&line);
            self.written = Some(Instant::now());
        }
    }

    /// A run must not end because nobody listens, so failures are passed over, as a bar passes over them.
    fn write(&mut self, line: &str) {
        let _ = writeln!(self.out, "{line}");
        let _ = self.out.flush();
    }
}

/// More is no estimate: what was asleep for a while, and now seems to stand still.
const LONGEST: Duration = Duration::from_secs(1000 * 86_400);

/// `4m 12s left`; nothing as long as the rate is not known.
fn time_left(rate: f64, left: Duration) -> String {
    if rate.is_finite() && rate > 0.0 && left < LONGEST { format!("{} left", span(left)) } else { String::new() }
}

/// `4m 12s`, `1h 05m`, `3d 02h`.
fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, seconds) => format!("{seconds}s"),
        (0, 0, minutes, seconds) => format!("{minutes}m {seconds:02}s"),
        (0, hours, minutes, _) => format!("{hours}h {minutes:02}m"),
        (days, hours, ..) => format!("{days}d {hours:02}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_is_told_where_it_is_known() {
        let told = |rate, seconds| time_left(rate, Duration::from_secs(seconds));
        assert_eq!(
            [told(1.0, 252), told(0.5, 3900), told(2.0, 180_000)],
            ["4m 12s left", "1h 05m left", "2d 02h left"]
        );
        assert_eq!([told(0.0, 5), told(f64::INFINITY, 5), told(1e-9, 40_000_000_000)], [""; 3]);
    }
}
