//! A scene as SVG.

use std::fmt::Write as _;

use super::{Colour, LETTER, Scene};

/// The whole file.
pub fn text(scene: &Scene) -> String {
    let (width, height) = (scene.width.ceil(), scene.height.ceil());
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"monospace\" font-size=\"{}\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
        LETTER * 1.4
    );
    // Writing to a text does not fail.
    for r in &scene.rectangles {
        let _ = write!(
            out,
            "<rect x=\"{:.2}\" y=\"{:.2}\" width=\"{:.2}\" height=\"{:.2}\" fill=\"{}\"",
            r.x,
            r.y,
            r.width,
            r.height,
            hex(r.colour)
        );
        let _ = match &r.title {
            Some(title) => writeln!(out, "><title>{}</title></rect>", escaped(title)),
            None => writeln!(out, "/>"),
        };
    }
    for s in &scene.strokes {
        let ((x1, y1), (x2, y2)) = (s.from, s.to);
        let _ = writeln!(out, "<line x1=\"{x1:.2}\" y1=\"{y1:.2}\" x2=\"{x2:.2}\" y2=\"{y2:.2}\" stroke=\"{}\"/>", hex(s.colour));
    }
    for label in &scene.labels {
        let _ = writeln!(out, "<text x=\"{:.2}\" y=\"{:.2}\">{}</text>", label.x, label.y + LETTER, escaped(&label.text));
    }
    out.push_str("</svg>\n");
    out
}

fn hex(colour: Colour) -> String {
    let [red, green, blue] = colour;
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// Names come from users.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_not_markup() {
        assert_eq!(escaped("a<b> & \"c\""), "a&lt;b&gt; &amp; &quot;c&quot;");
    }
}
