//! Drawing of loss curves.
//!
//! The SVG backend of the plotting library writes text as text, so neither fonts nor a system font library are needed;
//! the viewer chooses the font.

use std::error::Error;

use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{Circle, Cross, PathElement, Polygon, Text};
use plotters::prelude::SVGBackend;
use plotters::series::LineSeries;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, IntoFont, RGBColor, TextStyle, WHITE};

use crate::log::axis::{self, Axis};
use crate::log::series::{Bucket, Series};
use crate::log::table::{number, printable};

/// Width and height of the image in pixels.
const SIZE: (u32, u32) = (960, 560);
/// Space above the axes for title and legend, and to their left, in pixels.
const HEADER: u32 = 72;
const LEFT: u32 = 88;
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
const INK: RGBColor = RGBColor(51, 51, 51);
const GRID: RGBColor = RGBColor(228, 228, 228);
/// Maximum number of points for which each point gets a dot.
const DOTS: usize = 50;

/// Content of a plot.
pub(crate) struct Plot<'a> {
    pub(crate) title: &'a str,
    pub(crate) log_y: bool,
    /// Names and curves. Curves without points are skipped.
    pub(crate) curves: &'a [(String, Series)],
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
            self.header(&root)?;
            let steps = Axis::of_steps(self.buckets().map(Bucket::step));
            // The range covers the means only, so that one outlier does not flatten the curves.
            let means = self.buckets().filter_map(|bucket| self.mean(bucket));
            let values = if self.log_y { Axis::logarithmic(means) } else { Axis::linear(means) };
            let bottom = values.start();
            let mut chart = ChartBuilder::on(&root)
                .margin_top(HEADER)
                .margin_left(EDGE)
                .margin_right(40)
                .margin_bottom(12)
                .x_label_area_size(48)
                .y_label_area_size(LEFT - EDGE)
                .build_cartesian_2d(steps, values)?;
            chart
                .configure_mesh()
                .light_line_style(WHITE.mix(0.0))
                .bold_line_style(GRID)
                .axis_style(INK)
                .label_style(text(15))
                .axis_desc_style(text(16))
                .x_desc("step")
                .y_desc(if self.log_y { "loss, logarithmic" } else { "loss" })
                .x_label_formatter(&|step| axis::step_label(*step))
                .y_label_formatter(&|value| axis::label(*value))
                .draw()?;
            for (_, series, color) in self.shown() {
                self.curve(&mut chart, bottom, series, color)?;
            }
            root.present()?;
        }
        Ok(image)
    }

    /// Draws title and legend above the axes, where they cover nothing.
    fn header(&self, root: &Area<'_>) -> Drawn {
        let (mut x, y) = (LEFT as i32, 50);
        let write = |text: &str, x, y, style: TextStyle<'static>| {
            root.draw(&Text::new(printable(text), (x, y), style.pos(Pos::new(HPos::Left, VPos::Center))))
        };
        write(self.title, x, 24, text(22))?;
        for (name, series, color) in self.shown() {
            let label = format!("{name} {}", series.last().map_or_else(String::new, number));
            root.draw(&PathElement::new([(x, y), (x + 20, y)], color.stroke_width(3)))?;
            write(&label, x + 28, y, text(15))?;
            // The width of text is unknown here; this is enough for common fonts.
            x += 28 + 8 * label.chars().count() as i32 + 24;
        }
        if self.buckets().any(|bucket| self.is_off(bucket)) {
            root.draw(&Cross::new((x + 4, y), 4, ALARM.stroke_width(2)))?;
            let what = if self.log_y { "NaN, infinite or not positive" } else { "NaN or infinite" };
            write(what, x + 18, y, text(15))?;
        }
        Ok(())
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

fn text(size: u32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&INK)
}
