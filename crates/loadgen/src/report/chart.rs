//! Inline SVG chart with its title, legend and caption.
//!
//! Colours are CSS classes (`c0`… for kinds, `q0`… for percentiles) that the style sheet of the page defines, so one
//! drawing serves light, dark and print. Lines also differ by dash pattern and are labelled at their right ends.
//!
//! Not implemented: anything that needs a script. `data-` attributes carry the scales for the read-out of the page.
//!
//! # Pitfalls
//!
//! The drawing has fixed units and is stretched to its box; the style sheet enlarges letters on small screens, so the
//! left margin must leave room for them.

use std::fmt::Write as _;

use super::escape::{escape, shortened};
use super::series::CurvePoint;
use super::tick;
use super::unit::DisplayUnit;

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 256.0;
const LEFT: f64 = 54.0;
const TOP: f64 = 24.0;
const BOTTOM: f64 = 22.0;
/// Width reserved for the names of the lines.
const NAMES: f64 = 68.0;
/// Approximate width of a letter at the size in the style sheet.
const LETTER: f64 = 5.6;

/// Style of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CurveStyle {
    /// One of several kinds.
    Kind(usize),
    /// Like `Kind`, shaded down to the axis.
    Area(usize),
    /// Percentile from 50 (0) to 99.9 (3).
    Percentile(usize),
}

impl CurveStyle {
    fn class(self) -> String {
        match self {
            Self::Kind(n) | Self::Area(n) => format!("c{}", n % 7),
            Self::Percentile(n) => format!("q{n}"),
        }
    }
}

/// One line of a chart.
#[derive(Clone, Debug)]
pub(super) struct ChartCurve {
    pub(super) name: String,
    pub(super) look: CurveStyle,
    /// Ascending by `x`.
    pub(super) points: Vec<CurvePoint>,
}

/// The horizontal axis.
#[derive(Clone, Debug)]
pub(super) struct ChartAxis {
    /// Left end.
    pub(super) from: f64,
    /// Right end.
    pub(super) to: f64,
    /// Ticks with their labels.
    pub(super) ticks: Vec<(f64, String)>,
    /// Unit of the axis.
    pub(super) title: String,
    /// Largest distance between two points of an unbroken line.
    pub(super) gap: f64,
    /// Start of the shutdown: later values do not affect the vertical axis, since all streams are closed at once.
    pub(super) shutdown: f64,
}

impl ChartAxis {
    /// Axis for the seconds of a run.
    pub(super) fn time(length: f64, step: u32) -> Self {
        let length = length.max(1.0);
        let (ticks, title, show) = tick::seconds(length, 6);
        Self {
            from: 0.0,
            to: length,
            ticks: ticks.into_iter().map(|at| (at, show(at))).collect(),
            title: title.to_owned(),
            gap: (f64::from(step) * 3.0).max(12.0),
            shutdown: f64::MAX,
        }
    }
}

/// A chart.
#[derive(Clone, Debug)]
pub(super) struct Chart {
    /// Unique in the page; letters, digits and hyphens.
    pub(super) id: String,
    pub(super) title: String,
    /// Caption: what a reader must know.
    pub(super) note: String,
    /// Unit of the values.
    pub(super) unit: DisplayUnit,
    /// Whether the vertical axis is logarithmic.
    pub(super) log: bool,
    /// The horizontal axis.
    pub(super) axis: ChartAxis,
    /// Lines; those without points are not drawn.
    pub(super) lines: Vec<ChartCurve>,
    /// Starts of the phases.
    pub(super) phases: Vec<(f64, String)>,
    /// Limit to compare with.
    pub(super) limit: Option<(f64, String)>,
    /// Whether to mark each point, for charts with few points.
    pub(super) marks: bool,
}

/// Scales of a drawing.
struct ChartScale {
    low: f64,
    high: f64,
    log: bool,
    from: f64,
    to: f64,
    right: f64,
}

impl ChartScale {
    fn x(&self, value: f64) -> f64 {
        let share = (value - self.from) / (self.to - self.from).max(1e-9);
        LEFT + share.clamp(0.0, 1.0) * (self.right - LEFT)
    }

    fn y(&self, value: f64) -> f64 {
        let share = if self.log {
            (value.max(self.low).ln() - self.low.ln()) / (self.high.ln() - self.low.ln())
        } else {
            (value - self.low) / (self.high - self.low)
        };
        HEIGHT - BOTTOM - share.clamp(0.0, 1.0) * (HEIGHT - BOTTOM - TOP)
    }
}

/// Formats a coordinate with at most one decimal.
fn at(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

/// Path through points. Points inside a level segment are omitted.
fn path(points: &[(f64, f64)]) -> String {
    let mut path = String::new();
    let points: Vec<(String, String)> = points.iter().map(|p| (at(p.0), at(p.1))).collect();
    for (index, (x, y)) in points.iter().enumerate() {
        let level = |other: Option<&(String, String)>| other.is_some_and(|o| o.1 == *y);
        if index > 0 && level(points.get(index - 1)) && level(points.get(index + 1)) {
            continue;
        }
        let _ = write!(path, "{}{x} {y}", if index == 0 { 'M' } else { 'L' });
    }
    path
}

/// Points of a line before the shutdown, or all of them if none precede it.
fn before(line: &ChartCurve, shutdown: f64) -> impl Iterator<Item = &CurvePoint> {
    let running = line.points.iter().filter(move |point| point.x < shutdown).count();
    let until = if running > 0 { shutdown } else { f64::MAX };
    line.points.iter().filter(move |point| point.x < until)
}

impl Chart {
    /// Whether nothing was measured.
    pub(super) fn is_empty(&self) -> bool {
        self.lines.iter().all(|line| line.points.is_empty())
    }

    fn used(&self) -> impl Iterator<Item = &ChartCurve> {
        self.lines.iter().filter(|line| !line.points.is_empty())
    }

    fn values(&self, pick: fn(&CurvePoint) -> f64) -> impl Iterator<Item = f64> {
        let until = self.axis.shutdown;
        self.used().flat_map(move |line| before(line, until).map(pick))
    }

    /// Vertical ticks; the first and the last are the ends of the axis.
    fn ticks(&self) -> Vec<f64> {
        let mut high = self.values(|p| p.high).fold(0.0, f64::max);
        let low = self
            .values(|p| if p.low > 0.0 { p.low } else { p.y })
            .filter(|v| *v > 0.0)
            .fold(f64::MAX, f64::min);
        if let Some((limit, _)) = self.limit {
            // A limit far above all values would flatten the curves.
            if high * 20.0 >= limit || !self.log {
                high = high.max(limit);
            }
        }
        if self.log { tick::logarithmic(low.min(high), high) } else { tick::linear(high, 4) }
    }

    /// Complete figure: heading, legend, drawing, caption.
    pub(super) fn figure(&self) -> String {
        let mut html = format!("<figure class=\"chart\"><h3>{}</h3>", escape(&self.title));
        html.push_str("<ul class=\"legend\">");
        for line in self.used() {
            let highest = before(line, self.axis.shutdown).map(|p| p.high).fold(0.0, f64::max);
            let _ = write!(
                html,
                "<li><svg class=\"key\" viewBox=\"0 0 26 8\" aria-hidden=\"true\"><path class=\"l {}\" d=\"M1 4H25\"/></svg>{} \
                 <span class=\"most\">max {}</span></li>",
                line.look.class(),
                escape(&line.name),
                self.unit.show(highest)
            );
        }
        html.push_str("</ul>");
        html.push_str(&self.svg(None));
        if !self.note.is_empty() {
            let _ = write!(html, "<figcaption>{}</figcaption>", escape(&self.note));
        }
        html.push_str("</figure>\n");
        html
    }

    /// The drawing; with a style sheet of its own it is a standalone file.
    pub(super) fn svg(&self, style: Option<&str>) -> String {
        let ticks = self.ticks();
        let names = self.used().count() > 1;
        let right = WIDTH - if names { NAMES } else { 14.0 };
        let (low, high) = (ticks.first().copied().unwrap_or(0.0), ticks.last().copied().unwrap_or(1.0));
        let scale = ChartScale { low, high, log: self.log, from: self.axis.from, to: self.axis.to, right };
        let id = &self.id;
        let mut svg = String::new();
        let space = if style.is_some() {
            " xmlns=\"http://www.w3.org/2000/svg\" width=\"960\" height=\"512\""
        } else {
            ""
        };
        let _ = write!(
            svg,
            "<svg{space} class=\"plot\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-labelledby=\"{id}-t {id}-d\"\
             ><title id=\"{id}-t\">{}</title><desc id=\"{id}-d\">{}</desc>",
            escape(&self.title),
            escape(&self.description()),
        );
        if let Some(style) = style {
            let _ = write!(
                svg,
                "<style>{style}</style><rect class=\"ground\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>"
            );
            let _ = write!(svg, "<text class=\"head\" x=\"8\" y=\"14\">{}</text>", escape(&self.title));
        }
        self.axes(&mut svg, &scale, &ticks);
        if style.is_none() {
            self.phases(&mut svg, &scale);
        }
        self.limit(&mut svg, &scale);
        let mut ends = Vec::new();
        for line in self.used() {
            self.line(&mut svg, &scale, line);
            if let Some(last) = line.points.last() {
                ends.push((scale.y(last.y), line));
            }
        }
        if names {
            name_lines(&mut svg, right, ends);
        }
        svg.push_str("</svg>");
        svg
    }

    /// Text description of the chart.
    fn description(&self) -> String {
        let mut words: Vec<String> = Vec::new();
        for line in self.used() {
            let highest = before(line, self.axis.shutdown).max_by(|a, b| a.high.total_cmp(&b.high));
            if let (Some(top), Some(last)) = (highest, line.points.last()) {
                words.push(format!(
                    "{}: at most {}, {} at the end",
                    line.name,
                    self.unit.show(top.high),
                    self.unit.show(last.y)
                ));
            }
        }
        words.join("; ")
    }

    fn axes(&self, svg: &mut String, scale: &ChartScale, ticks: &[f64]) {
        let (right, bottom) = (scale.right, HEIGHT - BOTTOM);
        let mut grid = String::new();
        // Small screens have room for every other label only.
        for (index, &tick) in ticks.iter().enumerate() {
            let y = scale.y(tick);
            let _ = write!(grid, "M{LEFT} {}H{right}", at(y));
            let class = if index % 2 == 1 && ticks.len() > 4 { "y x" } else { "y" };
            let (x, y) = (LEFT - 5.0, at(y + 3.5));
            let _ =
                write!(svg, "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{}</text>", self.unit.tick(tick));
        }
        let mut last = f64::MIN;
        for (index, (value, text)) in self.axis.ticks.iter().enumerate() {
            let x = scale.x(*value);
            let half = text.chars().count() as f64 * LETTER / 2.0;
            let _ = write!(grid, "M{} {bottom}v4", at(x));
            if x - half < last {
                continue;
            }
            last = x + half + 6.0;
            let class = if index % 2 == 1 && self.axis.ticks.len() > 4 { "t x" } else { "t" };
            let _ = write!(
                svg,
                "<text class=\"{class}\" x=\"{}\" y=\"{}\">{}</text>",
                at(x),
                bottom + 15.0,
                escape(text)
            );
        }
        // The unit replaces the tick after the last one, or stands below the last one.
        let _ = write!(
            svg,
            "<path class=\"grid\" d=\"{grid}\"/><text class=\"u\" x=\"{}\" y=\"{}\">{}</text>",
            WIDTH - 2.0,
            bottom + 15.0,
            if scale.right < WIDTH - 40.0 { escape(&self.axis.title) } else { "".into() },
        );
        if !self.unit.title().is_empty() {
            let _ =
                write!(svg, "<text class=\"yt\" x=\"2\" y=\"{}\">{}</text>", TOP - 11.0, self.unit.title());
        }
    }

    fn phases(&self, svg: &mut String, scale: &ChartScale) {
        let ends = self.phases.iter().skip(1).map(|p| scale.x(p.0)).chain([scale.right]);
        let mut lines = String::new();
        for ((from, name), end) in self.phases.iter().zip(ends) {
            let x = scale.x(*from);
            if *from > self.axis.from {
                let _ = write!(lines, "M{} {}V{}", at(x), TOP - 8.0, HEIGHT - BOTTOM);
            }
            let room = ((end - x - 4.0) / LETTER) as usize;
            if room >= 3 {
                let _ = write!(
                    svg,
                    "<text class=\"phase\" x=\"{}\" y=\"{}\">{}</text>",
                    at(x + 3.0),
                    TOP - 2.5,
                    escape(&shortened(name, room))
                );
            }
        }
        if !lines.is_empty() {
            let _ = write!(svg, "<path class=\"begin\" d=\"{lines}\"/>");
        }
    }

    fn limit(&self, svg: &mut String, scale: &ChartScale) {
        let Some((limit, name)) = &self.limit else { return };
        if *limit < scale.low || *limit > scale.high {
            return;
        }
        let y = scale.y(*limit);
        let _ = write!(
            svg,
            "<path class=\"limit\" d=\"M{LEFT} {}H{}\"/><text class=\"limit\" x=\"{}\" y=\"{}\">{}</text>",
            at(y),
            at(scale.right),
            LEFT + 4.0,
            at(if y < TOP + 12.0 { y + 11.0 } else { y - 3.0 }),
            escape(name)
        );
    }

    fn line(&self, svg: &mut String, scale: &ChartScale, line: &ChartCurve) {
        let class = line.look.class();
        let (mut strokes, mut shades, mut marks) = (String::new(), String::new(), String::new());
        let apart = |pair: &[CurvePoint]| pair[1].x - pair[0].x > self.axis.gap;
        let mut start = 0;
        for index in 1..=line.points.len() {
            if index < line.points.len() && !apart(&line.points[index - 1..=index]) {
                continue;
            }
            let segment = &line.points[start..index];
            start = index;
            let place = |pick: fn(&CurvePoint) -> f64| -> Vec<(f64, f64)> {
                segment.iter().map(|p| (scale.x(p.x), scale.y(pick(p)))).collect()
            };
            let middle = place(|p| p.y);
            strokes.push_str(&path(&middle));
            if let [_] = middle.as_slice() {
                // An isolated point: a stroke of zero length renders as a dot because of its round caps.
                strokes.push_str("h0");
            }
            if self.marks {
                middle.iter().for_each(|p| marks.push_str(&mark(line.look, *p)));
            }
            if let (CurveStyle::Area(_), Some(first), Some(last)) = (line.look, middle.first(), middle.last())
            {
                let bottom = HEIGHT - BOTTOM;
                let _ = write!(shades, "{}L{} {bottom}L{} {bottom}Z", path(&middle), at(last.0), at(first.0));
            } else if segment.iter().any(|p| p.low < p.y) {
                let mut around = place(|p| p.high);
                around.extend(place(|p| p.low).into_iter().rev());
                // Here the line already shows the maxima; a shade would repeat it.
                if segment.iter().any(|p| p.y < p.high) {
                    let _ = write!(shades, "{}Z", path(&around));
                }
            }
        }
        if !shades.is_empty() {
            let _ = write!(svg, "<path class=\"s {class}\" d=\"{shades}\"/>");
        }
        let name = escape(&line.name);
        let _ = write!(svg, "<path class=\"l {class}\" data-name=\"{name}\" d=\"{strokes}\"/>");
        if !marks.is_empty() {
            let _ = write!(svg, "<path class=\"m {class}\" d=\"{marks}\"/>");
        }
    }
}

/// Circle, square, triangle or diamond around a point.
fn mark(look: CurveStyle, (x, y): (f64, f64)) -> String {
    let (CurveStyle::Kind(n) | CurveStyle::Area(n) | CurveStyle::Percentile(n)) = look;
    match n % 4 {
        0 => format!("M{} {}a3 3 0 1 0 6 0a3 3 0 1 0 -6 0Z", at(x - 3.0), at(y)),
        1 => format!("M{} {}h6v6h-6Z", at(x - 3.0), at(y - 3.0)),
        2 => format!("M{} {}l3.8 6.6h-7.6Z", at(x), at(y - 4.4)),
        _ => format!("M{} {}l4 4l-4 4l-4 -4Z", at(x), at(y - 4.0)),
    }
}

/// Labels at the right ends of the lines, moved apart where they would overlap.
fn name_lines(svg: &mut String, right: f64, mut ends: Vec<(f64, &ChartCurve)>) {
    const APART: f64 = 11.5;
    // More labels than fit would leave the drawing; the legend lists them all.
    ends.truncate(((HEIGHT - BOTTOM - TOP) / APART) as usize);
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut lowest_free = f64::MIN;
    for end in &mut ends {
        end.0 = end.0.max(lowest_free);
        lowest_free = end.0 + APART;
    }
    let mut ceiling = HEIGHT - BOTTOM + 2.0;
    for end in ends.iter_mut().rev() {
        end.0 = end.0.min(ceiling);
        ceiling = end.0 - APART;
    }
    for (y, line) in ends {
        let _ = write!(
            svg,
            "<path class=\"l {}\" d=\"M{} {}h8\"/><text class=\"n\" x=\"{}\" y=\"{}\">{}</text>",
            line.look.class(),
            right + 3.0,
            at(y),
            right + 14.0,
            at(y + 3.5),
            escape(&shortened(&line.name, 10))
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shutdown_does_not_flatten_the_curves() {
        let point = |x: f64, y: f64| CurvePoint { x, low: y, y, high: y };
        let points = vec![point(0.5, 10.0), point(1.5, 40.0), point(2.5, 90_000.0)];
        let mut chart = Chart {
            id: "x".to_owned(),
            title: "Presence".to_owned(),
            note: String::new(),
            unit: DisplayUnit::Rate,
            log: false,
            axis: ChartAxis { shutdown: 2.0, ..ChartAxis::time(3.0, 1) },
            lines: vec![ChartCurve { name: "received".to_owned(), look: CurveStyle::Kind(0), points }],
            phases: Vec::new(),
            limit: None,
            marks: false,
        };
        assert_eq!(chart.ticks().last(), Some(&40.0));
        assert!(chart.description().contains("at most 40"), "{}", chart.description());
        // A run with points only after the shutdown still shows them.
        chart.axis.shutdown = 0.0;
        assert!(chart.ticks().last().is_some_and(|top| *top >= 90_000.0));
    }
}
