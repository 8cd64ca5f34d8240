//! Published ratios as a picture: a bar for each row, from 1 to how many times better or worse MACO is.

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
    fn there_may_be_nothing_to_show() {
        assert!(ratios("none", &[]).unwrap().contains("none"));
    }
}
