//! A scene as pixels, in a PNG file. Letters are those of a bitmap font in the program: none of the system's is needed.

use font8x8::{BASIC_FONTS, LATIN_FONTS, UnicodeFonts};

use super::{Colour, INK, LETTER, Scene};

/// Red, green, blue of every pixel, row after row.
struct Pixels {
    width: usize,
    height: usize,
    bytes: Vec<u8>,
}

impl Pixels {
    fn set(&mut self, x: i64, y: i64, colour: Colour) {
        let (Ok(x), Ok(y)) = (usize::try_from(x), usize::try_from(y)) else { return };
        if x < self.width && y < self.height {
            let at = 3 * (y * self.width + x);
            self.bytes[at..at + 3].copy_from_slice(&colour);
        }
    }

    fn fill(&mut self, (left, top): (f64, f64), (right, bottom): (f64, f64), colour: Colour) {
        // At least one pixel.
        let (left, top) = (left.floor() as i64, top.floor() as i64);
        let (right, bottom) = ((right.round() as i64).max(left + 1), (bottom.round() as i64).max(top + 1));
        for y in top..bottom {
            for x in left..right {
                self.set(x, y, colour);
            }
        }
    }

    fn stroke(&mut self, from: (f64, f64), to: (f64, f64), colour: Colour) {
        let steps = (to.0 - from.0).abs().max((to.1 - from.1).abs()).ceil().max(1.0);
        for step in 0..=steps as u32 {
            let part = f64::from(step) / steps;
            let (x, y) = (from.0 + (to.0 - from.0) * part, from.1 + (to.1 - from.1) * part);
            self.set(x.round() as i64, y.round() as i64, colour);
        }
    }

    fn write(&mut self, (x, y): (f64, f64), text: &str) {
        for (place, letter) in text.chars().enumerate() {
            // The font has no ellipsis.
            let letter = if letter == '…' { '~' } else { letter };
            let Some(rows) = BASIC_FONTS.get(letter).or_else(|| LATIN_FONTS.get(letter)).or_else(|| BASIC_FONTS.get('?')) else { continue };
            for (row, bits) in rows.into_iter().enumerate() {
                for column in (0..8).filter(|column| bits >> column & 1 == 1) {
                    self.set(x as i64 + place as i64 * LETTER as i64 + column, y as i64 + row as i64, INK);
                }
            }
        }
    }
}

/// The whole file.
pub fn png(scene: &Scene) -> std::io::Result<Vec<u8>> {
    let (width, height) = (scene.width.ceil() as usize, scene.height.ceil() as usize);
    let mut pixels = Pixels { width, height, bytes: vec![255; 3 * width * height] };
    for r in &scene.rectangles {
        pixels.fill((r.x, r.y), (r.x + r.width, r.y + r.height), r.colour);
    }
    for s in &scene.strokes {
        pixels.stroke(s.from, s.to, s.colour);
    }
    for label in &scene.labels {
        pixels.write((label.x, label.y), &label.text);
    }
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width as u32, height as u32);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&pixels.bytes)?;
    writer.finish()?;
    Ok(bytes)
}
