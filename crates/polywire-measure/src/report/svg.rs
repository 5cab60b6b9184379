//! Draws plots as SVG for the report page. The plots look the same everywhere and are readable
//! without colour.

use std::fmt::Write as _;

/// How an axis maps values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Linear, from 0, or from the lowest value if that is negative.
    Linear,
    /// Logarithmic, by powers of ten.
    Logarithmic,
}

/// Colours that remain distinct with any colour vision (Okabe and Ito).
const COLOURS: [&str; 8] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#999999"];

/// Line patterns, for print without colour.
const DASHES: [&str; 4] = ["", "6 3", "2 3", "9 3 2 3"];

const WIDTH: f64 = 860.0;

/// Formats a figure.
pub type Text = Box<dyn Fn(f64) -> String>;

/// Horizontal bars, each of one or more parts.
pub struct Bars {
    /// The label in front of each bar.
    pub labels: Vec<String>,
    /// Each part's name and its length in every bar.
    pub parts: Vec<(String, Vec<f64>)>,
    /// The interval of each bar's total length.
    pub intervals: Vec<Option<(f64, f64)>>,
    /// Formats lengths.
    pub text: Text,
}

/// A plot of curves.
pub struct Lines {
    /// The curves.
    pub series: Vec<Series>,
    /// The horizontal axis.
    pub x: Scale,
    /// The vertical axis.
    pub y: Scale,
    /// Formats values on the horizontal axis.
    pub x_text: Text,
    /// Formats values on the vertical axis.
    pub y_text: Text,
}

/// One curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Name of the curve.
    pub label: String,
    /// Points, from left to right.
    pub points: Vec<(f64, f64)>,
}

/// Draws bars below each other, each picture under its title.
///
/// ```
/// use polywire_measure::report::svg::{self, Bars};
///
/// let bars = |value| Bars {
///     labels: vec!["cdr".into()],
///     parts: vec![("bytes".into(), vec![value])],
///     intervals: Vec::new(),
///     text: Box::new(|value| format!("{value:.0} B")),
/// };
/// let svg = svg::column(&[("before", &bars(56.0)), ("after", &bars(48.0))]);
/// assert!(svg.starts_with("<svg ") && svg.find("56 B") < svg.find("after") && svg.contains("48 B"));
/// ```
pub fn column(pictures: &[(&str, &Bars)]) -> String {
    const TITLE: f64 = 24.0;
    let mut svg = open(pictures.iter().map(|(_, bars)| TITLE + bars.height()).sum());
    let mut y = 0.0;
    for (title, bars) in pictures {
        text(&mut svg, 8.0, y + 17.0, "start", title);
        let _ = write!(svg, "<g transform=\"translate(0 {:.0})\">{}</g>", y + TITLE, bars.draw());
        y += TITLE + bars.height();
    }
    svg + "</svg>"
}

/// Distance from one bar to the next.
const ROW: f64 = 22.0;

impl Bars {
    /// Draws the bars.
    ///
    /// ```
    /// use polywire_measure::report::svg::Bars;
    ///
    /// let bars = Bars {
    ///     labels: vec!["cdr".into(), "<json>".into()],
    ///     parts: vec![("bytes".into(), vec![56.0, 167.0])],
    ///     intervals: vec![None, Some((160.0, 170.0))],
    ///     text: Box::new(|value| format!("{value:.0} B")),
    /// };
    /// let svg = bars.draw();
    /// assert!(svg.starts_with("<svg ") && svg.contains("167 B") && svg.contains("&lt;json&gt;"));
    /// ```
    pub fn draw(&self) -> String {
        let left = 16.0 + 7.0 * self.labels.iter().map(|label| label.chars().count().min(48)).max().unwrap_or(0) as f64;
        let legend = self.legend_height();
        let total = |i: usize| self.parts.iter().map(|(_, values)| values.get(i).copied().unwrap_or(0.0)).sum::<f64>();
        let most = (0..self.labels.len()).map(total).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
        let scale = (WIDTH - left - 90.0) / most;
        let mut svg = open(self.height());
        if self.parts.len() > 1 {
            self.legend(&mut svg, left);
        }
        for (i, label) in self.labels.iter().enumerate() {
            let y = legend + ROW * i as f64;
            text(&mut svg, left - 8.0, y + 15.0, "end", &shorten(label, 48));
            let mut x = left;
            for (part, (_, values)) in self.parts.iter().enumerate() {
                let width = values.get(i).copied().unwrap_or(0.0) * scale;
                let _ = write!(
                    svg,
                    "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"14\" fill=\"{}\"/>",
                    y + 4.0,
                    COLOURS[part % COLOURS.len()]
                );
                x += width;
            }
            if let Some((low, high)) = self.intervals.get(i).copied().flatten().filter(|(low, high)| low < high) {
                let (low, high, y) = (left + low * scale, left + high.min(most * 1.08) * scale, y + 11.0);
                let _ = write!(svg, "<path d=\"M{low:.1} {y:.1}H{high:.1}\" stroke=\"#000\" stroke-width=\"1.5\"/>");
                x = x.max(high);
            }
            text(&mut svg, x + 5.0, y + 15.0, "start", &(self.text)(total(i)));
        }
        svg + "</svg>"
    }

    fn height(&self) -> f64 {
        self.legend_height() + ROW * self.labels.len() as f64 + 8.0
    }

    fn legend_height(&self) -> f64 {
        if self.parts.len() > 1 { 24.0 } else { 4.0 }
    }

    fn legend(&self, svg: &mut String, left: f64) {
        let mut x = left;
        for (part, (label, _)) in self.parts.iter().enumerate() {
            let colour = COLOURS[part % COLOURS.len()];
            let _ = write!(svg, "<rect x=\"{x:.1}\" y=\"4\" width=\"10\" height=\"10\" fill=\"{colour}\"/>");
            text(svg, x + 14.0, 13.0, "start", label);
            x += 30.0 + 7.0 * label.chars().count() as f64;
        }
    }
}

/// The coordinate plane of the curves.
struct Plane {
    x: Axis,
    y: Axis,
}

struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
    /// Positions of the axis ends in the picture.
    from: f64,
    to: f64,
}

impl Axis {
    fn new(scale: Scale, values: impl Iterator<Item = f64>, from: f64, to: f64) -> Axis {
        let (mut low, mut high) = (f64::MAX, f64::MIN_POSITIVE);
        values.filter(|value| value.is_finite()).for_each(|value| (low, high) = (low.min(value), high.max(value)));
        match scale {
            Scale::Linear => (low, high) = (low.min(0.0) * 1.02, high * 1.02),
            Scale::Logarithmic => {
                low = 10f64.powf(low.max(1e-9).log10().floor());
                high = 10f64.powf(high.max(1e-9).log10().ceil());
                if low >= high {
                    high = low * 10.0;
                }
            }
        }
        Axis { scale, low, high, from, to }
    }

    fn place(&self, value: f64) -> f64 {
        let part = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Logarithmic => (value.max(self.low) / self.low).log10() / (self.high / self.low).log10(),
        };
        self.from + part.clamp(0.0, 1.0) * (self.to - self.from)
    }

    fn ticks(&self) -> Vec<f64> {
        match self.scale {
            Scale::Logarithmic => {
                let decades = (self.high / self.low).log10().round() as i32;
                let first = self.low.log10().round() as i32;
                let step = 1 + decades / 8;
                (0..=decades).step_by(step as usize).map(|i| 10f64.powi(first + i)).collect()
            }
            Scale::Linear => {
                let rough = (self.high - self.low) / 5.0;
                let power = 10f64.powf(rough.log10().floor());
                let step = [1.0, 2.0, 5.0, 10.0]
                    .map(|m| m * power)
                    .into_iter()
                    .find(|step| *step >= rough * 0.95)
                    .unwrap_or(rough);
                let first = (self.low / step).ceil() as i64;
                (first..).map(|i| i as f64 * step).take_while(|tick| *tick <= self.high).collect()
            }
        }
    }
}

impl Lines {
    /// Draws the curves.
    ///
    /// ```
    /// use polywire_measure::report::svg::{Lines, Scale, Series};
    ///
    /// let lines = Lines {
    ///     series: vec![Series { label: "cdr".into(), points: vec![(10.0, 100.0), (500.0, 4000.0)] }],
    ///     x: Scale::Logarithmic,
    ///     y: Scale::Linear,
    ///     x_text: Box::new(|x| format!("{x} fields")),
    ///     y_text: Box::new(|y| format!("{y} B")),
    /// };
    /// let svg = lines.draw();
    /// assert!(svg.contains("100 fields") && svg.contains("4000 B") && svg.contains(">cdr<"));
    /// ```
    pub fn draw(&self) -> String {
        let rows = self.series.len().div_ceil(3) as f64;
        let (top, height) = (10.0 + 18.0 * rows, 300.0);
        let points = || self.series.iter().flat_map(|series| &series.points);
        let plane = Plane {
            x: Axis::new(self.x, points().map(|point| point.0), 90.0, WIDTH - 40.0),
            y: Axis::new(self.y, points().map(|point| point.1), top + height, top),
        };
        let mut svg = open(top + height + 34.0);
        self.grid(&mut svg, &plane);
        for (i, series) in self.series.iter().enumerate() {
            let (colour, dash) = (COLOURS[i % COLOURS.len()], DASHES[(i / COLOURS.len() + i) % DASHES.len()]);
            let at = |(x, y): &(f64, f64)| format!("{:.1} {:.1}", plane.x.place(*x), plane.y.place(*y));
            let path: Vec<String> = series.points.iter().map(at).collect();
            let stroke = format!("stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dash}\" fill=\"none\"");
            let _ = write!(svg, "<path d=\"M{}\" {stroke}/>", path.join("L"));
            let (x, y) = (90.0 + (i % 3) as f64 * 250.0, 12.0 + 18.0 * (i / 3) as f64);
            let _ = write!(svg, "<path d=\"M{x} {}h26\" {stroke}/>", y - 4.0);
            text(&mut svg, x + 32.0, y, "start", &shorten(&series.label, 30));
        }
        svg + "</svg>"
    }

    fn grid(&self, svg: &mut String, plane: &Plane) {
        for tick in plane.x.ticks() {
            let (x, low, high) = (plane.x.place(tick), plane.y.from, plane.y.to);
            let _ = write!(svg, "<path d=\"M{x:.1} {low:.1}V{high:.1}\" stroke=\"#ddd\"/>");
            text(svg, x, low + 18.0, "middle", &(self.x_text)(tick));
        }
        for tick in plane.y.ticks() {
            let (y, low, high) = (plane.y.place(tick), plane.x.from, plane.x.to);
            let _ = write!(svg, "<path d=\"M{low:.1} {y:.1}H{high:.1}\" stroke=\"#ddd\"/>");
            text(svg, low - 8.0, y + 4.0, "end", &(self.y_text)(tick));
        }
    }
}

fn open(height: f64) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"{WIDTH}\" height=\"{height:.0}\" \
         font-family=\"system-ui,sans-serif\" font-size=\"12\"><rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>"
    )
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = write!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>");
}

fn shorten(text: &str, most: usize) -> String {
    match text.chars().count() > most {
        true => text.chars().take(most - 1).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linear_axis_has_all_values() {
        let axis = |values: &[f64]| Axis::new(Scale::Linear, values.iter().copied(), 0.0, 100.0);
        assert_eq!(axis(&[5.0, 10.0]).ticks(), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        let both = axis(&[-10.0, 5.0]);
        assert_eq!(both.ticks(), [-10.0, -5.0, 0.0, 5.0]);
        assert!(both.place(-10.0) > 0.0 && both.place(-10.0) < both.place(0.0) && both.place(5.0) < 100.0);
        assert!(axis(&[-3.0]).ticks().contains(&-3.0));
    }
}
