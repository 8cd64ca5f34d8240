//! Published rows as pictures: ratios, a bar for each row from 1 to how many times better or worse MACO is; and rooflines (Williams, Waterman,
//! Patterson, 2009): what is reached over how often each byte is used, or, of what only moves bytes, below the roof of the memory alone.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::failure::Failure;

const WIDTH: u32 = 960;
/// Of a row's name.
const LEFT: u32 = 430;
const ROW: u32 = 18;
const MARGIN: u32 = 34;
const BETTER: RGBColor = RGBColor(46, 125, 90);
const WORSE: RGBColor = RGBColor(205, 110, 50);

/// An SVG with a bar for each name and ratio, on a logarithmic scale.
pub fn ratios(title: &str, rows: &[(String, f64)]) -> Result<String, Failure> {
    draw(title, rows).map_err(|error| Failure::Text(format!("drawing {title}: {error}")))
}

fn draw(title: &str, rows: &[(String, f64)]) -> Result<String, Box<dyn std::error::Error>> {
    let mut svg = String::new();
    {
        let height = rows.len() as u32 * ROW;
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height + 2 * MARGIN)).into_drawing_area();
        area.fill(&WHITE)?;
        let least = rows.iter().map(|(_, ratio)| *ratio).fold(0.5, f64::min) * 0.8;
        let most = rows.iter().map(|(_, ratio)| *ratio).fold(2.0, f64::max) * 1.6;
        let mut chart = ChartBuilder::on(&area)
            .margin_top(MARGIN)
            .margin_right(20)
            .set_label_area_size(LabelAreaPosition::Left, LEFT)
            .set_label_area_size(LabelAreaPosition::Bottom, MARGIN)
            .build_cartesian_2d((least..most).log_scale(), 0.0..rows.len() as f64)?;
        chart.configure_mesh().disable_y_mesh().disable_y_axis().x_label_formatter(&|x| format!("{x:.2}")).draw()?;
        let text = ("sans-serif", 12).into_font().color(&BLACK);
        area.draw(&Text::new(title.to_owned(), (12, 12), ("sans-serif", 15).into_font().color(&BLACK)))?;
        for (n, (name, ratio)) in rows.iter().enumerate() {
            // The first is at the top.
            let middle = (rows.len() - n) as f64 - 0.5;
            let color = if *ratio >= 1.0 { BETTER } else { WORSE };
            chart.draw_series([Rectangle::new([(1.0, middle - 0.35), (*ratio, middle + 0.35)], color.filled())])?;
            let value = text.clone().pos(Pos::new(HPos::Left, VPos::Center));
            chart.draw_series([Text::new(format!("{ratio:.2}"), (ratio.max(1.0) * 1.03, middle), value)])?;
            let label = text.clone().pos(Pos::new(HPos::Right, VPos::Center));
            area.draw(&Text::new(name.clone(), (LEFT as i32 - 8, (MARGIN + n as u32 * ROW + ROW / 2) as i32), label))?;
        }
        chart.draw_series([PathElement::new([(1.0, 0.0), (1.0, rows.len() as f64)], BLACK)])?;
        area.present()?;
    }
    Ok(svg)
}

/// A machine's limits: how its name begins, floating-point operations and bytes a second.
struct Roof {
    machine: &'static str,
    flops: f64,
    bytes: f64,
}

/// Of GEMMs of 16-bit elements without sparsity, and of device memory, from NVIDIA's data sheets.
const ROOFS: [Roof; 2] =
    [Roof { machine: "NVIDIA H200", flops: 989.5e12, bytes: 4.8e12 }, Roof { machine: "NVIDIA H100", flops: 989.5e12, bytes: 3.35e12 }];

/// A case of a roofline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reached {
    /// Floating-point operations for each byte.
    pub intensity: f64,
    /// Floating-point operations a second of MACO.
    pub ours: f64,
    /// Those of the peer.
    pub theirs: f64,
}

/// An SVG of all cases below the roof of `machine`, if that is known: MACO's filled, the peer's empty.
pub fn roofline(title: &str, cases: &[Reached], machine: &str) -> Result<String, Failure> {
    let roof = ROOFS.iter().find(|roof| machine.contains(roof.machine));
    draw_roofline(title, cases, roof).map_err(|error| Failure::Text(format!("drawing {title}: {error}")))
}

fn draw_roofline(title: &str, cases: &[Reached], roof: Option<&Roof>) -> Result<String, Box<dyn std::error::Error>> {
    const TERA: f64 = 1e12;
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, 540)).into_drawing_area();
        area.fill(&WHITE)?;
        let (mut x, mut y) = ((f64::INFINITY, 0.0f64), (f64::INFINITY, 0.0f64));
        for case in cases {
            x = (x.0.min(case.intensity / 2.0), x.1.max(case.intensity * 2.0));
            y = (y.0.min(case.ours.min(case.theirs) / TERA / 2.0), y.1.max(case.ours.max(case.theirs) / TERA * 2.0));
        }
        if let Some(roof) = roof {
            y.1 = y.1.max(roof.flops.min(roof.bytes * x.1) / TERA * 1.5);
        }
        let mut chart = ChartBuilder::on(&area)
            .margin_top(MARGIN)
            .margin_right(20)
            .set_label_area_size(LabelAreaPosition::Left, 70)
            .set_label_area_size(LabelAreaPosition::Bottom, 50)
            .build_cartesian_2d((x.0..x.1).log_scale(), (y.0..y.1).log_scale())?;
        let plain = |value: &f64| if *value < 10.0 { format!("{value:.1}") } else { format!("{value:.0}") };
        chart.configure_mesh().x_desc("FLOP for each byte").y_desc("TFLOP/s").x_label_formatter(&plain).y_label_formatter(&plain).draw()?;
        area.draw(&Text::new(title.to_owned(), (12, 12), ("sans-serif", 15).into_font().color(&BLACK)))?;
        if let Some(roof) = roof {
            let height = |x: f64| roof.flops.min(roof.bytes * x) / TERA;
            let ridge = (roof.flops / roof.bytes).clamp(x.0, x.1);
            chart.draw_series([PathElement::new([(x.0, height(x.0)), (ridge, height(ridge)), (x.1, height(x.1))], BLACK)])?;
        }
        chart.draw_series(cases.iter().map(|case| Circle::new((case.intensity, case.theirs / TERA), 4, WORSE)))?;
        chart.draw_series(cases.iter().map(|case| Circle::new((case.intensity, case.ours / TERA), 3, BETTER.filled())))?;
        legend(&area)?;
        area.present()?;
    }
    Ok(svg)
}

/// A case that is bound by memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Moved {
    /// Of the case and of the peer.
    pub name: String,
    /// Bytes a second of MACO.
    pub ours: f64,
    /// Those of the peer.
    pub theirs: f64,
}

/// An SVG with a row for each case, and the roof that the memory of `machine` is, if that is known: MACO's filled, the peer's empty. On the axis of a
/// [`roofline`] all of them would be at 0.
pub fn bandwidth(title: &str, cases: &[Moved], machine: &str) -> Result<String, Failure> {
    let roof = ROOFS.iter().find(|roof| machine.contains(roof.machine));
    draw_bandwidth(title, cases, roof).map_err(|error| Failure::Text(format!("drawing {title}: {error}")))
}

fn draw_bandwidth(title: &str, cases: &[Moved], roof: Option<&Roof>) -> Result<String, Box<dyn std::error::Error>> {
    const TERA: f64 = 1e12;
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, cases.len() as u32 * ROW + 2 * MARGIN + 16)).into_drawing_area();
        area.fill(&WHITE)?;
        let most = cases.iter().map(|case| case.ours.max(case.theirs)).fold(roof.map_or(0.0, |roof| roof.bytes), f64::max) / TERA * 1.05;
        let mut chart = ChartBuilder::on(&area)
            .margin_top(MARGIN)
            .margin_right(20)
            .set_label_area_size(LabelAreaPosition::Left, LEFT)
            .set_label_area_size(LabelAreaPosition::Bottom, MARGIN + 16)
            .build_cartesian_2d(0.0..most, 0.0..cases.len() as f64)?;
        chart.configure_mesh().disable_y_mesh().disable_y_axis().x_desc("TB/s").x_label_formatter(&|x| format!("{x:.1}")).draw()?;
        area.draw(&Text::new(title.to_owned(), (12, 12), ("sans-serif", 15).into_font().color(&BLACK)))?;
        let label = ("sans-serif", 12).into_font().color(&BLACK).pos(Pos::new(HPos::Right, VPos::Center));
        for (n, case) in cases.iter().enumerate() {
            // The first is at the top.
            let middle = (cases.len() - n) as f64 - 0.5;
            chart.draw_series([Circle::new((case.theirs / TERA, middle), 4, WORSE)])?;
            chart.draw_series([Circle::new((case.ours / TERA, middle), 3, BETTER.filled())])?;
            area.draw(&Text::new(case.name.clone(), (LEFT as i32 - 8, (MARGIN + n as u32 * ROW + ROW / 2) as i32), label.clone()))?;
        }
        if let Some(roof) = roof {
            let at = roof.bytes / TERA;
            chart.draw_series([PathElement::new([(at, 0.0), (at, cases.len() as f64)], BLACK)])?;
        }
        legend(&area)?;
        area.present()?;
    }
    Ok(svg)
}

/// Which circles are whose, in the corner.
fn legend(area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>) -> Result<(), Box<dyn std::error::Error>> {
    for (n, (name, style)) in [("MACO", BETTER.filled()), ("the peer", WORSE.stroke_width(1))].into_iter().enumerate() {
        let at = (WIDTH as i32 - 120, 12 + 16 * n as i32);
        area.draw(&Circle::new(at, 4, style)).map_err(|error| error.to_string())?;
        area.draw(&Text::new(name, (at.0 + 10, at.1 - 6), ("sans-serif", 12).into_font().color(&BLACK)))
            .map_err(|error| error.to_string())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_name_and_a_bar_of_its_length() {
        let svg = ratios("gemm", &[("small & slow".into(), 0.5), ("as fast".into(), 1.0), ("faster".into(), 27.0)]).unwrap();
        for text in ["gemm", "small &amp; slow", "as fast", "faster", "0.50", "1.00", "27.00"] {
            assert!(svg.contains(text), "{text} in {svg}");
        }
        let bar = |color: &str| svg.lines().filter(|line| line.starts_with("<rect") && line.contains(color)).count();
        assert_eq!((bar("#2E7D5A"), bar("#CD6E32")), (2, 1), "{svg}");
    }

    #[test]
    fn a_roofline_has_both_systems_and_the_roof_of_a_known_machine() {
        let cases = [Reached { intensity: 1.0, ours: 4e12, theirs: 3e12 }, Reached { intensity: 2000.0, ours: 7e14, theirs: 7e14 }];
        let known = roofline("gemm", &cases, "Commit x; NVIDIA H200, driver 1").unwrap();
        let unknown = roofline("gemm", &cases, "a machine").unwrap();
        let count = |svg: &str, text: &str| svg.matches(text).count();
        // One of each in the legend.
        assert_eq!((count(&known, "<circle"), count(&unknown, "<circle")), (6, 6));
        assert_eq!(count(&known, "<polyline"), count(&unknown, "<polyline") + 1);
        for text in ["gemm", "MACO", "the peer", "TFLOP/s"] {
            assert!(known.contains(text), "{text}");
        }
    }

    #[test]
    fn what_moves_bytes_is_below_the_roof_of_a_known_memory() {
        // As far as the axis reaches with and without a roof.
        let cases = [("copy", 5e12, 3e12), ("softmax", 2e12, 1e12)].map(|(name, ours, theirs)| Moved { name: name.into(), ours, theirs });
        let [known, unknown] =
            ["Commit x; NVIDIA H200, driver 1", "a machine"].map(|machine| bandwidth("memory", &cases, machine).unwrap());
        let count = |svg: &str, text: &str| svg.matches(text).count();
        assert_eq!((count(&known, "<circle"), count(&unknown, "<circle")), (6, 6));
        assert_eq!(count(&known, "<polyline"), count(&unknown, "<polyline") + 1);
        for text in ["memory", "copy", "softmax", "MACO", "the peer", "TB/s"] {
            assert!(known.contains(text), "{text}");
        }
    }

    #[test]
    fn there_may_be_nothing_to_show() {
        assert!(ratios("none", &[]).unwrap().contains("none"));
    }
}
