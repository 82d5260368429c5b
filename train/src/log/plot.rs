//! Drawing of loss curves.
//!
//! The SVG backend of the plotting library writes text as text, so neither fonts nor a system font library are needed;
//! the viewer chooses the font.

use std::error::Error;

use indicatif::HumanCount;
use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{Circle, Cross, EmptyElement, PathElement, Polygon, Text};
use plotters::prelude::SVGBackend;
use plotters::series::LineSeries;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontTransform, IntoFont, RGBColor, TextStyle, WHITE};

use crate::log::EVAL_LOSS;
use crate::log::axis::{self, Axis};
use crate::log::series::{Bucket, Series};
use crate::log::table::{number, printable};

/// Width and height of the image in pixels.
const SIZE: (u32, u32) = (760, 480);
/// Space above the axes for the title, for a row of the legend, and to the left of the axes, in pixels.
const HEADER: i32 = 52;
const ROW: i32 = 20;
const LEFT: u32 = 88;
/// Space to the right of the axes, without and with perplexities.
const RIGHT: [u32; 2] = [40, 84];
/// Share of the height that the learning rate takes.
const RATE_HEIGHT: f64 = 0.15;
/// Empty margin at the left, in pixels.
const EDGE: u32 = 14;
/// Colour-blind-safe palette of Okabe and Ito: train, eval, others.
const COLORS: [RGBColor; 5] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
];
/// Colour of marks for values that cannot be drawn.
const ALARM: RGBColor = RGBColor(200, 0, 0);
/// Colour of the learning rate.
const RATE: RGBColor = RGBColor(130, 130, 130);
pub(crate) const INK: RGBColor = RGBColor(51, 51, 51);
const GRID: RGBColor = RGBColor(228, 228, 228);
/// Colours on dark pages.
const DARK: &str = r##"<style>@media(prefers-color-scheme:dark){
[fill="#FFFFFF"]{fill:#0d1117} [fill="#333333"]{fill:#c9d1d9} [stroke="#333333"]{stroke:#8b949e} [stroke="#E4E4E4"]{stroke:#30363d}
[fill="#0072B2"]{fill:#58a6ff} [stroke="#0072B2"]{stroke:#58a6ff} [fill="#C80000"]{fill:#ff7b72} [stroke="#C80000"]{stroke:#ff7b72}
}</style>"##;
/// Maximum number of points for which each point gets a dot.
const DOTS: usize = 50;

/// Adds the colours of dark pages to an SVG image whose text and axes are `#333333` on white, such as those of plotters.
pub fn with_dark_colors(mut image: String) -> String {
    // The first tag is that of the image.
    let place = image.find('>').map_or(0, |place| place + 1);
    image.insert_str(place, DARK);
    image
}

/// Content of a plot.
pub(crate) struct Plot<'a> {
    pub(crate) title: &'a str,
    pub(crate) log_y: bool,
    /// Names and curves. Curves without points are skipped.
    pub(crate) curves: &'a [(String, Series)],
    /// Learning rate; without points, it is not drawn.
    pub(crate) rate: &'a Series,
    /// If true, the right axis has the perplexities of the losses.
    pub(crate) perplexity: bool,
}

/// Entry of the legend: its text, and the colour and width of its line; without these, a cross.
struct Entry {
    label: String,
    line: Option<(RGBColor, u32)>,
}

type Drawn = Result<(), Box<dyn Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;

impl Plot<'_> {
    /// Draws the image; the error is the message of the plotting library.
    pub(crate) fn svg(&self) -> Result<String, String> {
        self.draw().map_err(|error| error.to_string())
    }

    fn draw(&self) -> Result<String, Box<dyn Error>> {
        let mut image = String::new();
        {
            let root = SVGBackend::with_string(&mut image, SIZE).into_drawing_area();
            root.fill(&WHITE)?;
            let header = self.header(&root)?;
            let steps = Axis::of_steps(self.buckets().map(Bucket::step));
            // The range covers the means only, so that one outlier does not flatten the curves.
            let means = self.buckets().filter_map(|bucket| self.mean(bucket));
            let values = if self.log_y { Axis::logarithmic(means) } else { Axis::linear(means) };
            let (bottom, right, ticks) = (values.start(), steps.at(1.0), values.ticks().to_vec());
            let rate = self.rate_points(&values);
            let mut chart = ChartBuilder::on(&root)
                .margin_top(header)
                .margin_left(EDGE)
                .margin_right(RIGHT[usize::from(self.perplexity)])
                .margin_bottom(12)
                .x_label_area_size(48)
                .y_label_area_size(LEFT - EDGE)
                .build_cartesian_2d(steps, values)?;
            chart
                .configure_mesh()
                .light_line_style(WHITE.mix(0.0))
                .bold_line_style(GRID)
                .axis_style(INK)
                .label_style(text(16))
                .axis_desc_style(text(16))
                .x_desc("step")
                .y_desc(if self.log_y { "loss, logarithmic" } else { "loss" })
                .x_label_formatter(&|step| axis::step_label(*step))
                .y_label_formatter(&|value| axis::label(*value))
                .draw()?;
            chart.draw_series(LineSeries::new(rate, RATE.stroke_width(1)))?;
            if self.perplexity {
                let style = text(16).pos(Pos::new(HPos::Left, VPos::Center));
                let label = |tick: f64| Text::new(perplexity(tick), (6, 0), style.clone());
                chart.draw_series(ticks.iter().map(|&tick| EmptyElement::at((right, tick)) + label(tick)))?;
                let style = ("sans-serif", 16).into_font().transform(FontTransform::Rotate270).color(&INK);
                let place = ((SIZE.0 - EDGE) as i32, (SIZE.1 / 2) as i32);
                root.draw(&Text::new("perplexity", place, style.pos(Pos::new(HPos::Center, VPos::Bottom))))?;
            }
            for (_, series, color) in self.shown() {
                self.curve(&mut chart, bottom, series, color)?;
            }
            root.present()?;
        }
        Ok(with_dark_colors(image))
    }

    /// Draws title and legend above the axes, where they cover nothing. Returns their height.
    fn header(&self, root: &Area<'_>) -> Result<u32, Box<dyn Error>> {
        let write = |text: &str, x, y, style: TextStyle<'static>| {
            root.draw(&Text::new(printable(text), (x, y), style.pos(Pos::new(HPos::Left, VPos::Center))))
        };
        write(self.title, LEFT as i32, 24, text(22))?;
        let (mut x, mut y) = (LEFT as i32, HEADER);
        for Entry { label, line } in self.legend() {
            // The width of text is unknown here; this is enough for common fonts.
            let width = 28 + 8 * label.chars().count() as i32;
            if x > LEFT as i32 && x + width > SIZE.0 as i32 {
                (x, y) = (LEFT as i32, y + ROW);
            }
            match line {
                Some((color, width)) => {
                    root.draw(&PathElement::new([(x, y), (x + 20, y)], color.stroke_width(width)))?;
                }
                None => root.draw(&Cross::new((x + 10, y), 4, ALARM.stroke_width(2)))?,
            }
            write(&label, x + 28, y, text(16))?;
            x += width + 24;
        }
        Ok((y + ROW) as u32)
    }

    /// Returns the entries of the legend: each curve with its last value.
    fn legend(&self) -> Vec<Entry> {
        let curves = self.shown().map(|(name, series, color)| {
            let last = series.last().unwrap_or(f64::NAN);
            let perplexity = if self.perplexity && name == EVAL_LOSS {
                format!(" (perplexity {})", perplexity(last))
            } else {
                String::new()
            };
            Entry { label: format!("{name} {}{perplexity}", number(last)), line: Some((color, 3)) }
        });
        let rate = self.rate.last().map(|last| Entry {
            label: format!("learning rate {} (peak {})", axis::label(short(last)), axis::label(short(self.peak()))),
            line: Some((RATE, 1)),
        });
        let off = self.buckets().any(|bucket| self.is_off(bucket)).then(|| Entry {
            label: if self.log_y { "NaN, infinite or not positive" } else { "NaN or infinite" }.into(),
            line: None,
        });
        curves.chain(rate).chain(off).collect()
    }

    /// Returns the highest learning rate.
    fn peak(&self) -> f64 {
        self.rate.buckets().iter().map(|bucket| bucket.high).fold(0.0, f64::max)
    }

    /// Returns the curve of the learning rate, in the lowest part of the axes.
    fn rate_points(&self, values: &Axis) -> Vec<(f64, f64)> {
        let peak = self.peak();
        let share = |rate: f64| if peak > 0.0 { RATE_HEIGHT * rate / peak } else { 0.0 };
        let point = |bucket: &Bucket| Some((bucket.step(), values.at(share(bucket.mean()?))));
        self.rate.buckets().iter().filter_map(point).collect()
    }

    /// Draws a curve: a line through the means, with gaps where there is no mean; a band that spans the values; crosses
    /// on the axis for values that cannot be drawn.
    fn curve(&self, chart: &mut Chart<'_, '_>, bottom: f64, series: &Series, color: RGBColor) -> Drawn {
        let buckets = series.buckets();
        for run in buckets.split(|bucket| self.mean(bucket).is_none()) {
            if run.iter().any(|bucket| bucket.low < bucket.high) {
                let upper = run.iter().map(|bucket| (bucket.step(), bucket.high));
                let lower = run.iter().rev().map(|bucket| (bucket.step(), bucket.low));
                chart.draw_series([Polygon::new(upper.chain(lower).collect::<Vec<_>>(), color.mix(0.2))])?;
            }
            let line: Vec<_> = run.iter().filter_map(|bucket| Some((bucket.step(), self.mean(bucket)?))).collect();
            if line.len() == 1 || buckets.len() <= DOTS {
                chart.draw_series(line.iter().map(|point| Circle::new(*point, 3, color.filled())))?;
            }
            chart.draw_series(LineSeries::new(line, color.stroke_width(2)))?;
        }
        let off = buckets.iter().filter(|bucket| self.is_off(bucket));
        chart.draw_series(off.map(|bucket| Cross::new((bucket.step(), bottom), 4, ALARM.stroke_width(2))))?;
        Ok(())
    }

    /// Returns the curves that have points, with their colours.
    fn shown(&self) -> impl Iterator<Item = (&str, &Series, RGBColor)> {
        let curves = self.curves.iter().zip(COLORS.iter().cycle());
        curves
            .filter(|((_, series), _)| series.last().is_some())
            .map(|((name, series), color)| (&**name, series, *color))
    }

    fn buckets(&self) -> impl Iterator<Item = &Bucket> {
        self.curves.iter().flat_map(|(_, series)| series.buckets())
    }

    /// Returns the mean of a bucket, if these axes can show it.
    fn mean(&self, bucket: &Bucket) -> Option<f64> {
        bucket.mean().filter(|mean| !self.log_y || *mean > 0.0)
    }

    /// True if the bucket has a value that these axes cannot show.
    fn is_off(&self, bucket: &Bucket) -> bool {
        bucket.has_gap() || self.log_y && bucket.low <= 0.0
    }
}

/// Formats the perplexity of a loss, with about three digits.
fn perplexity(loss: f64) -> String {
    match loss.exp() {
        value if value < 10.0 => format!("{value:.2}"),
        value if value < 100.0 => format!("{value:.1}"),
        value if value < 1e6 => HumanCount(value.round() as u64).to_string(),
        value => format!("{value:.1e}"),
    }
}

/// Rounds a number to three digits.
fn short(value: f64) -> f64 {
    format!("{value:.2e}").parse().unwrap_or(value)
}

fn text(size: u32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&INK)
}
