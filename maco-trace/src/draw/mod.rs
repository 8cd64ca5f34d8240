//! The timeline of a trace as rectangles, lines and texts. How those become a file does not belong here: `svg` and `raster`.

mod raster;
mod svg;

use std::path::{Path, PathBuf};

use maco_host::profile::{Kind, Profile, RankProfiles, Role, Span};

/// A picture that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum DrawError {
    /// The name of the file does not say what to make.
    #[error("{} is no name of a picture that can be drawn\nhelp: end it in `.svg` or `.png`", path.display())]
    Format {
        /// The file.
        path: PathBuf,
    },
    /// The file system refused.
    #[error("{} cannot be written: {source}\nhelp: check the path and its permissions", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// What a picture is written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Scalable, with names that a browser shows under the pointer.
    Svg,
    /// Pixels.
    Png,
}

impl Format {
    /// By the end of the name.
    pub fn of(path: &Path) -> Result<Format, DrawError> {
        match path.extension().and_then(|extension| extension.to_str()).map(str::to_ascii_lowercase).as_deref() {
            Some("svg") => Ok(Format::Svg),
            Some("png") => Ok(Format::Png),
            _ => Err(DrawError::Format { path: path.to_owned() }),
        }
    }
}

/// Draws the profiles into a file, one below another, `width` pixels wide.
pub fn write(profiles: &RankProfiles, path: &Path, format: Format, width: u32, critical_path: bool) -> Result<(), DrawError> {
    let scene = Scene::new(profiles, width, critical_path);
    let bytes = match format {
        Format::Svg => Ok(svg::text(&scene).into_bytes()),
        Format::Png => raster::png(&scene),
    };
    bytes.and_then(|bytes| std::fs::write(path, bytes)).map_err(|source| DrawError::Io { path: path.to_owned(), source })
}

/// Red, green, blue.
type Colour = [u8; 3];

/// Well told apart, and by most who see few colours (after Paul Tol's "muted" scheme).
const COLOURS: [Colour; 9] = [
    [51, 34, 136],
    [221, 204, 119],
    [17, 119, 51],
    [204, 102, 119],
    [136, 204, 238],
    [153, 153, 51],
    [136, 34, 85],
    [68, 170, 153],
    [170, 68, 153],
];
const WAITING: Colour = [225, 225, 225];
const INK: Colour = [30, 30, 30];
const RULE: Colour = [200, 200, 200];
const PATH: Colour = [220, 20, 20];
const SERVING: Colour = [90, 90, 90];

/// Height of a letter, and width of one in the picture of pixels.
const LETTER: f64 = 8.0;
const MARGIN: f64 = 10.0;
/// Least room for the names of workers.
const NAMES: f64 = 130.0;
const LINE: f64 = 16.0;
/// Least height of what one warp did: a pixel.
const WARP: f64 = 1.0;

/// A filled rectangle.
#[derive(Clone, Debug, PartialEq)]
struct Rectangle {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
    colour: Colour,
    /// What it stands for.
    title: Option<String>,
}

/// A straight line.
#[derive(Clone, Debug, PartialEq)]
struct Stroke {
    from: (f64, f64),
    to: (f64, f64),
    colour: Colour,
}

/// Letters, from their upper left corner on.
#[derive(Clone, Debug, PartialEq)]
struct Label {
    x: f64,
    y: f64,
    text: String,
}

/// A picture.
#[derive(Clone, Debug, PartialEq)]
struct Scene {
    width: f64,
    height: f64,
    rectangles: Vec<Rectangle>,
    strokes: Vec<Stroke>,
    labels: Vec<Label>,
}

/// How rows look, the same for all ranks.
struct Rows {
    /// Roles that have noted anything.
    roles: Vec<Role>,
    /// Height of a role's line, and of the consumers'.
    lane: f64,
    consumers: f64,
    /// From one worker to the next.
    row: f64,
    by_warps: bool,
}

impl Rows {
    fn new(profiles: &[Profile]) -> Rows {
        let spans = || profiles.iter().flat_map(|profile| &profile.spans);
        let roles: Vec<Role> = Role::ALL.into_iter().filter(|&role| spans().any(|span| span.kind.role() == role)).collect();
        let workers: f64 = profiles.iter().map(|profile| f64::from(profile.workers)).sum();
        let lane = (900.0 / (workers * roles.len().max(1) as f64)).clamp(3.0, 14.0).floor();
        // Warps that run tasks by themselves have a part of the consumers' line each, which may have to be higher than others for that.
        let by_warps = spans().any(|span| span.warp.is_some());
        let consumers = if by_warps { lane.max(WARP * f64::from(Span::WARPS)) } else { lane };
        let mut rows = Rows { roles, lane, consumers, row: 0.0, by_warps };
        rows.row = rows.heights(rows.roles.len()).max(lane) + 2.0;
        rows
    }

    fn height(&self, role: Role) -> f64 {
        if role == Role::Consume { self.consumers } else { self.lane }
    }

    /// Of the lines of the first `count` roles.
    fn heights(&self, count: usize) -> f64 {
        self.roles[..count].iter().map(|&role| self.height(role)).sum()
    }

    /// Where a span is drawn in rows that begin at `top`: its upper edge, and how high it is.
    fn place(&self, top: f64, span: &Span) -> (f64, f64) {
        let role = span.kind.role();
        let before = self.roles.iter().position(|&known| known == role).unwrap_or(0);
        let (y, height) = (top + self.row * f64::from(span.worker) + self.heights(before), self.height(role));
        let strip = self.consumers / f64::from(Span::WARPS);
        span.warp.map_or((y, height), |warp| (y + strip * f64::from(warp), strip))
    }

    /// Of a rank: schedulers have a line each, as far apart as workers: their names must fit.
    fn of(&self, profile: &Profile) -> f64 {
        self.row * (f64::from(profile.workers) + profile.schedulers.len() as f64)
    }
}

impl Scene {
    fn new(profiles: &RankProfiles, width: u32, critical_path: bool) -> Scene {
        let (ranks, shifts, elapsed) = (profiles.ranks(), profiles.shifts(), profiles.elapsed());
        let width = f64::from(width);
        let rows = Rows::new(ranks);
        // Each of several ranks has a line above its rows.
        let title = if ranks.len() > 1 { LINE } else { 0.0 };
        let top = MARGIN + 3.0 * LINE;
        let bottom = top + ranks.iter().map(|profile| title + rows.of(profile)).sum::<f64>();
        let operations = ranks.first().map_or(0, |profile| profile.operations.len());
        let mut scene = Scene {
            width,
            height: bottom + LINE * (operations as f64 + 3.0) + MARGIN,
            rectangles: Vec::new(),
            strokes: Vec::new(),
            labels: Vec::new(),
        };
        let schedulers = ranks.iter().flat_map(|profile| profile.schedulers.iter().enumerate());
        let longest = schedulers.map(|(number, scheduler)| MARGIN + extent(&scheduler.label(number))).fold(NAMES, f64::max);
        // Names never take more than half of the picture.
        let left = longest.min(width / 2.0);
        let scale = (width - left - 2.0 * MARGIN) / elapsed.max(1) as f64;
        let x = |time: u64| left + MARGIN + time as f64 * scale;
        scene.label(MARGIN, MARGIN, headline(profiles));
        scene.axis(elapsed, top - LINE, bottom, x);
        let mut at = top;
        for (rank, (profile, shift)) in ranks.iter().zip(shifts).enumerate() {
            if ranks.len() > 1 {
                scene.label(MARGIN, at, format!("rank {rank}: {}", profile.device));
            }
            scene.rank(profile, &rows, at + title, shift, critical_path, x);
            at += title + rows.of(profile);
        }
        if let Some(profile) = ranks.first() {
            scene.legend(profile, ranks, &rows, bottom + LINE);
        }
        scene
    }

    /// The rows of one rank, from `top` on; its times begin at `shift`.
    fn rank(&mut self, profile: &Profile, rows: &Rows, top: f64, shift: u64, critical_path: bool, x: impl Fn(u64) -> f64) {
        let x = |time: u64| x(shift + time);
        // As many names as fit.
        let every = (LINE / rows.row).ceil().max(1.0) as usize;
        for worker in (0..profile.workers).step_by(every) {
            let name = match profile.multiprocessors.get(worker as usize) {
                Some(sm) => format!("{worker} (SM {sm})"),
                None => format!("worker {worker}"),
            };
            self.label(MARGIN, top + rows.row * f64::from(worker), name);
        }
        for (number, scheduler) in profile.schedulers.iter().enumerate() {
            let y = top + rows.row * (f64::from(profile.workers) + number as f64);
            if number.is_multiple_of(every) {
                self.label(MARGIN, y, scheduler.label(number));
            }
            for busy in &scheduler.busy {
                let (left, right) = (x(busy.start), x(busy.end));
                let title = format!("serve: {}", when(shift + busy.start, busy.duration()));
                self.add(Rectangle { x: left, y, width: (right - left).max(0.5), height: rows.lane, colour: SERVING, title: Some(title) });
            }
        }
        for span in &profile.spans {
            let role = span.kind.role();
            let operation = profile.tasks[span.task as usize].operation as usize;
            let colour = if span.kind == Kind::Wait { WAITING } else { COLOURS[operation % COLOURS.len()] };
            let (left, right) = (x(span.start), x(span.end));
            let (y, height) = rows.place(top, span);
            let rectangle = Rectangle {
                x: left,
                y,
                // Nothing is so short that it is not seen.
                width: (right - left).max(0.5),
                height,
                colour: if role == Role::Consume { colour } else { pale(colour) },
                title: Some(title(profile, span, shift)),
            };
            self.add(rectangle);
        }
        if critical_path {
            let steps = profile.critical_path().steps;
            let middle = |span: &Span| {
                let (y, height) = rows.place(top, span);
                y + height / 2.0
            };
            for step in &steps {
                let at = middle(&step.span);
                self.strokes.push(Stroke { from: (x(step.span.start), at), to: (x(step.span.end), at), colour: PATH });
            }
            for pair in steps.windows(2) {
                let (from, to) = (&pair[0].span, &pair[1].span);
                self.strokes.push(Stroke { from: (x(from.end), middle(from)), to: (x(to.start), middle(to)), colour: PATH });
            }
        }
    }

    /// Of what does not fit the picture, the beginning.
    fn label(&mut self, x: f64, y: f64, text: String) {
        let room = ((self.width - x) / LETTER).floor().max(1.0) as usize;
        let text = if text.chars().count() > room { text.chars().take(room - 1).chain(['…']).collect() } else { text };
        self.labels.push(Label { x, y, text });
    }

    /// A rectangle, or a longer one: neighbours that look alike and would be less than a quarter of a pixel wide are one, so that
    /// pictures of long launches stay small.
    fn add(&mut self, new: Rectangle) {
        if let Some(last) = self.rectangles.last_mut()
            && (last.y, last.height, last.colour) == (new.y, new.height, new.colour)
            && last.x <= new.x
            && new.x - (last.x + last.width) < 0.25
            && (last.width < 1.0 || new.width <= 0.5)
        {
            last.width = (new.x + new.width - last.x).max(last.width);
            last.title = None;
            return;
        }
        self.rectangles.push(new);
    }

    fn axis(&mut self, elapsed: u64, y: f64, bottom: f64, x: impl Fn(u64) -> f64) {
        let step = tick(elapsed);
        let (unit, name) = if step >= 1_000_000 {
            (1e6, "ms")
        } else if step >= 1000 {
            (1e3, "µs")
        } else {
            (1.0, "ns")
        };
        let mut time = 0;
        while time <= elapsed {
            self.strokes.push(Stroke { from: (x(time), y + LETTER + 2.0), to: (x(time), bottom), colour: RULE });
            let text = format!("{} {name}", time as f64 / unit);
            // The last one ends with the picture.
            self.label(x(time).min(self.width - extent(&text)), y - 2.0, text);
            time += step;
        }
    }

    /// Operations are those of all ranks; how many tasks they have is said of the first one.
    fn legend(&mut self, profile: &Profile, ranks: &[Profile], rows: &Rows, mut y: f64) {
        let names: Vec<&str> = rows.roles.iter().map(|role| role.name()).collect();
        let serving = if ranks.iter().all(|profile| profile.schedulers.is_empty()) { "" } else { "; dark grey: a scheduler serves" };
        let warps = if rows.by_warps { format!("; narrow: one of {} warps", Span::WARPS) } else { String::new() };
        self.label(MARGIN, y, format!("lines of a worker: {}; light grey: waiting{warps}{serving}", names.join(", ")));
        for (index, operation) in profile.operations.iter().enumerate() {
            y += LINE;
            let colour = COLOURS[index % COLOURS.len()];
            self.rectangles.push(Rectangle { x: MARGIN, y, width: LETTER * 2.0, height: LETTER, colour, title: None });
            self.label(
                MARGIN + LETTER * 3.0,
                y,
                format!("{} {:?}: {} tasks", profile.operation_label(index), operation.tile, operation.tasks),
            );
        }
    }
}

/// What is drawn.
fn headline(profiles: &RankProfiles) -> String {
    let elapsed = profiles.elapsed() as f64 / 1e3;
    match profiles.ranks() {
        [profile] => format!("{} on {}: {elapsed:.2} µs", profile.megakernel, profile.device),
        ranks => format!(
            "{} on {} ranks: {elapsed:.2} µs, clocks agree to ±{:.2} µs",
            ranks.first().map_or("", |profile| &profile.megakernel),
            ranks.len(),
            profiles.clock_error() as f64 / 1e3
        ),
    }
}

/// Width of a text.
fn extent(text: &str) -> f64 {
    LETTER * text.chars().count() as f64
}

fn title(profile: &Profile, span: &Span, shift: u64) -> String {
    let warp = span.warp.map_or_else(String::new, |warp| format!(", warp {warp}"));
    format!("{} {}{warp}: {}", span.kind.name(), profile.label(span.task), when(shift + span.start, span.duration()))
}

fn when(start: u64, duration: u64) -> String {
    format!("{:.3} µs from {:.3} µs on", duration as f64 / 1e3, start as f64 / 1e3)
}

/// Half way to white.
fn pale(colour: Colour) -> Colour {
    colour.map(|part| part / 2 + 128)
}

/// A round number of nanoseconds, of which about eight are `elapsed`.
fn tick(elapsed: u64) -> u64 {
    let mut step = 1;
    loop {
        for factor in [1, 2, 5] {
            if elapsed / (step * factor) <= 10 {
                return step * factor;
            }
        }
        step *= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use maco_host::profile::{Operation, RankClock, Scheduler};

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!((tick(0), tick(9), tick(11), tick(100), tick(12_345), tick(7_654_321)), (1, 1, 2, 10, 2000, 1_000_000));
    }

    #[test]
    fn formats_follow_the_file_extension() {
        assert_eq!(Format::of(Path::new("a/b.SVG")).unwrap(), Format::Svg);
        assert_eq!(Format::of(Path::new("b.png")).unwrap(), Format::Png);
        assert!(Format::of(Path::new("b.jpg")).unwrap_err().to_string().contains(".svg"));
        assert!(Format::of(Path::new("png")).is_err());
    }

    /// At any width, however long the names are, and however many ranks there are.
    #[test]
    fn no_label_leaves_the_picture() {
        let scheduler = Scheduler { multiprocessor: Some(131), busy: vec![] };
        for (elapsed, width) in [(1, 300), (1000, 300), (2000, 301), (12_345, 777), (7_654_321, 1600), (10_000_000, 1600)] {
            let profile = Profile {
                megakernel: "m".repeat(90),
                rank: None,
                device: "paper".into(),
                schedule: "schedulers(2)".into(),
                workers: 2,
                multiprocessors: vec![4, 5],
                elapsed,
                schedulers: vec![scheduler.clone(); 12],
                dropped: 0,
                roofline: None,
                operations: vec![Operation { name: "o".repeat(90), tile: vec![64, 128], tasks: 0, bytes: None, flops: 0 }],
                tasks: vec![],
                spans: vec![],
                dependencies: vec![],
            };
            let of = |rank| Profile { rank: Some(RankClock { rank, ranks: 3, job: 1, origin: 5, error: 1 }), ..profile.clone() };
            let [one, three] = [vec![profile.clone()], (0..3).map(of).collect()].map(|profiles| RankProfiles::of(profiles).unwrap());
            for profiles in [&one, &three] {
                let scene = Scene::new(profiles, width, false);
                assert!(scene.labels.iter().all(|label| label.x + extent(&label.text) <= scene.width), "{width}: {:?}", scene.labels);
                // All marks of the axis are whole.
                let marks = scene.labels.iter().filter(|label| [" ns", " µs", " ms"].iter().any(|unit| label.text.ends_with(unit)));
                assert!(marks.count() as u64 > elapsed / tick(elapsed), "{elapsed}: {:?}", scene.labels);
                let named = |text: &str| scene.labels.iter().filter(|label| label.text == text).count();
                assert_eq!(named("scheduler 0 (SM 131)"), profiles.ranks().len(), "{:?}", scene.labels);
                assert_eq!(named("rank 2: paper"), profiles.ranks().len() / 3);
                // All is inside, and ranks are apart.
                assert!(scene.labels.iter().all(|label| label.y + LETTER <= scene.height));
            }
            let heights = [&one, &three].map(|profiles| Scene::new(profiles, width, false).height);
            assert!(heights[1] > heights[0] + 2.0 * 14.0 * 5.0, "{heights:?}");
        }
    }
}
