//! Display of progress during a run.

use std::fmt::Write as _;
use std::io::Write;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use std::time::{Duration, Instant};

use console::Term;
use indicatif::{HumanCount, HumanFloatCount, ProgressBar, ProgressFinish, ProgressState, ProgressStyle};

use crate::log::table::number;
use crate::log::{EVAL_LOSS, LEARNING_RATE, LogError, Record, Sink, TRAIN_LOSS};

/// Progress bar on standard error, with the losses, the rate and the time left:
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
    /// Last rate and its unit. Records of evaluations have no rate.
    rate: Option<(String, f64)>,
    /// Step at which the run began or resumed.
    first: Arc<AtomicU64>,
}

/// Plain lines, if there is no terminal.
struct Plain {
    out: Box<dyn Write + Send>,
    every: Duration,
    written: Option<Instant>,
    /// Line of the last record, if it was not written.
    pending: Option<String>,
}

impl Progress {
    /// Creates a bar for a run of `steps` steps in total.
    pub fn new(steps: u64) -> Self {
        let bar = ProgressBar::new(steps);
        let plain = bar.is_hidden().then(|| Plain::new(Box::new(std::io::stderr()), Duration::from_secs(30)));
        Self::with(bar, plain)
    }

    /// Writes plain lines to `out`, at most once every `every`, whether or not standard error is a terminal.
    pub fn lines(steps: u64, out: impl Write + Send + 'static, every: Duration) -> Self {
        let bar = ProgressBar::hidden();
        bar.set_length(steps);
        Self::with(bar, Some(Plain::new(Box::new(out), every)))
    }

    fn with(bar: ProgressBar, plain: Option<Plain>) -> Self {
        let template = "{percent:>3}% {wide_bar:.green/black.bright} {human_pos}/{human_len}{msg}  {left:.dim}";
        // A test checks that this constant template is valid.
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let first = Arc::new(AtomicU64::new(0));
        let begin = first.clone();
        let left = move |state: &ProgressState, out: &mut dyn std::fmt::Write| {
            let done = state.pos().saturating_sub(begin.load(Ordering::Relaxed));
            let remaining = state.len().unwrap_or(0).saturating_sub(state.pos());
            let time = match state.is_finished() {
                true => span(state.elapsed()),
                false => time_left(done, state.elapsed(), remaining),
            };
            let _ = out.write_str(if columns() < NARROW { time.trim_end_matches(" left") } else { &time });
        };
        bar.set_style(style.progress_chars("━╸━").with_key("left", left));
        // Keep the last state on the screen, also if the run ends early.
        let bar = bar.with_finish(ProgressFinish::Abandon);
        Self { bar, plain, losses: [("loss", None), ("eval", None)], rate: None, first }
    }

    /// Sets the step from which the run resumes. Rate and time left count from there.
    pub fn starting_at(mut self, step: u64) -> Self {
        self.first.store(step, Ordering::Relaxed);
        self.bar = self.bar.with_position(step);
        self.bar.reset_elapsed();
        self
    }

    /// Number of steps since the run began or resumed.
    fn done(&self) -> u64 {
        self.bar.position().saturating_sub(self.first.load(Ordering::Relaxed))
    }

    /// Moves the bar to this step between records.
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

    /// Hides the bar while `work` writes to the terminal, then redraws it.
    pub fn suspend<T>(&self, work: impl FnOnce() -> T) -> T {
        self.bar.suspend(work)
    }

    /// Formats losses and rate, each preceded by two spaces, as far as they fit into so many columns.
    fn message(&self, room: usize) -> String {
        let losses = self.losses.iter().filter_map(|(name, loss)| Some(format!("  {name} {}", number((*loss)?))));
        let mut message = String::new();
        for part in losses.chain(self.rate()) {
            if message.len() + part.len() <= room {
                message += &part;
            }
        }
        message
    }

    /// Formats the rate, if it is known. It is the mean of steps if records of training have no rate. Before the first
    /// record of training its unit is unknown.
    fn rate(&self) -> Option<String> {
        let [(_, trained), _] = self.losses;
        let mean = || trained.map(|_| ("steps", self.done() as f64 / self.bar.elapsed().as_secs_f64()));
        let (unit, rate) = self.rate.as_ref().map(|(unit, rate)| (unit.as_str(), *rate)).or_else(mean)?;
        let shown = if rate < 100.0 { format!("{rate:.3}") } else { HumanCount(rate.round() as u64).to_string() };
        (rate.is_finite() && rate > 0.0).then(|| format!("  {shown} {unit}/s"))
    }

    /// Number of columns of a terminal that the bar leaves for the message: beside the percentage, the steps and the time.
    fn room(&self, columns: usize) -> usize {
        let steps = HumanCount(self.bar.length().unwrap_or(0)).to_string().len();
        let time = if columns < NARROW { "59m 59s" } else { "59m 59s left" };
        columns.saturating_sub("100%  ".len() + 2 * steps + "/".len() + "  ".len() + time.len())
    }

    /// Formats a plain line.
    fn line(&self, record: &Record) -> String {
        let steps = self.bar.length().unwrap_or(0);
        let percent = record.step.saturating_mul(100).checked_div(steps).unwrap_or(100);
        let (step, steps) = (HumanCount(record.step), HumanCount(steps));
        let mut line = format!("step {step}/{steps} ({percent}%)  epoch {}", HumanFloatCount(record.epoch));
        line.push_str(&self.message(usize::MAX));
        if let Some(rate) = record.get(LEARNING_RATE) {
            let _ = write!(line, "  learning rate {}", number(rate));
        }
        let remaining = self.bar.length().unwrap_or(0).saturating_sub(self.bar.position());
        let _ = write!(line, "  {}", time_left(self.done(), self.bar.elapsed(), remaining));
        line
    }
}

impl Sink for Progress {
    fn record(&mut self, record: &Record) -> Result<(), LogError> {
        for ((_, loss), name) in self.losses.iter_mut().zip([TRAIN_LOSS, EVAL_LOSS]) {
            let shown = if self.plain.is_some() && name == EVAL_LOSS { None } else { *loss };
            // Plain lines show each evaluation loss only once.
            *loss = record.get(name).or(shown);
        }
        let measured = |(name, rate): (&String, &f64)| Some((name.strip_suffix("_per_second")?.into(), *rate));
        self.rate = record.values.iter().find_map(measured).or(self.rate.take());
        self.bar.set_position(record.step);
        if self.plain.is_none() {
            self.bar.set_message(self.message(self.room(columns())));
            return Ok(());
        }
        let line = self.line(record);
        if let Some(plain) = &mut self.plain {
            plain.pending = Some(line);
            // The last step has an evaluation too: both are one line, which `flush` writes.
            let is_last = self.bar.length().is_some_and(|steps| record.step >= steps);
            if !is_last && plain.written.is_none_or(|written| written.elapsed() >= plain.every) {
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

    /// A closed output must not end the run, so errors are ignored, as the bar does.
    fn write(&mut self, line: &str) {
        let _ = writeln!(self.out, "{line}");
        let _ = self.out.flush();
    }
}

/// Columns of a terminal below which the bar leaves out words.
const NARROW: usize = 60;

/// Columns of the terminal on standard error.
fn columns() -> usize {
    usize::from(Term::stderr().size().1)
}

/// Maximum time left that is shown.
const LONGEST: Duration = Duration::from_secs(1000 * 86_400);

/// Formats the time left, such as `4m 12s left`, from the mean time per step so far, including evaluations; empty
/// before the first step. indicatif's own estimate covers only the last seconds, so an evaluation of minutes would look
/// like steps of hours.
fn time_left(done: u64, elapsed: Duration, remaining: u64) -> String {
    match Duration::try_from_secs_f64(elapsed.as_secs_f64() / done as f64 * remaining as f64) {
        Ok(left) if left < LONGEST => format!("{} left", span(left)),
        _ => String::new(),
    }
}

/// Formats a duration: `4m 12s`, `1h 05m`, `3d 02h`.
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
    fn the_bar_fits_into_the_terminal() {
        let mut progress = Progress::lines(5000, std::io::sink(), Duration::ZERO);
        progress.losses = [("loss", Some(2.3412)), ("eval", Some(2.4021))];
        progress.rate = Some(("tokens".into(), 12_300.0));
        let shown = [100, 80, 60, 40].map(|columns| (progress.room(columns), progress.message(progress.room(columns))));
        let all = "  loss 2.3412  eval 2.4021  12,300 tokens/s";
        assert_eq!(
            shown.clone().map(|(_, message)| message),
            [all, all, "  loss 2.3412  eval 2.4021", "  loss 2.3412"]
        );
        // Beside it: "100% ", " 5,000/5,000" and the time, without a bar.
        assert_eq!(shown.map(|(room, _)| room), [69, 49, 29, 14]);
    }

    #[test]
    fn rates_have_one_unit() {
        let mut progress = Progress::lines(5000, std::io::sink(), Duration::ZERO);
        progress.step(7);
        std::thread::sleep(Duration::from_millis(2));
        progress.record(&Record::new(7, 0.1, 0.1).with(EVAL_LOSS, 1.5)).expect("ok");
        assert_eq!(progress.message(usize::MAX), "  eval 1.5000", "the unit is unknown");
        progress.record(&Record::new(10, 0.1, 0.1).with(TRAIN_LOSS, 2.5)).expect("ok");
        assert!(progress.message(usize::MAX).ends_with(" steps/s"), "{}", progress.message(usize::MAX));
        progress.record(&Record::new(20, 0.1, 0.1).with("texts_per_second", 250.0)).expect("ok");
        assert!(progress.message(usize::MAX).ends_with("  250 texts/s"), "{}", progress.message(usize::MAX));
    }

    #[test]
    fn remaining_time_is_shown_if_known() {
        let told = |done, seconds, remaining| time_left(done, Duration::from_secs(seconds), remaining);
        assert_eq!(
            [told(100, 100, 252), told(1, 2, 1950), told(7, 14, 90_000)],
            ["4m 12s left", "1h 05m left", "2d 02h left"]
        );
        assert_eq!([told(0, 5, 5), told(0, 0, 5), told(1, 1_000_000, 40_000)], [""; 3]);
    }
}
