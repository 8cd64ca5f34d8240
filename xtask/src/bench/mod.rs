//! Measurements: those of kernels and plans are programs of `benches/`; those of builds are here.

mod build;

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Subcommand;

use crate::bundle::NO_MULTICAST;
use crate::command::{cargo, run};
use crate::failure::Failure;
use crate::packages::root;

/// What to measure.
#[derive(Subcommand)]
pub enum Bench {
    /// GEMMs of published models' shapes, 16 back to back and alone, beside CUDA graphs of cuBLASLt's fastest algorithm; `-- --sweep`
    /// has every tile in several numbers of parts (needs a GPU)
    Gemm(Program),
    /// Two GEMMs with a GELU between, beside CUDA graphs of cuBLASLt with the GELU in its epilogue (needs a GPU)
    Mlp(Program),
    /// The library's memory-bound tasks beside a copy of as many bytes, and beside PyTorch if `python3` has it (needs a GPU)
    Memory(Program),
    /// Chains of GEMVs of one row, whose weights are streamed, beside CUDA graphs of cuBLAS and a copy (needs a GPU)
    Gemv(Program),
    /// 16 layers of a decoder at batch 1 without attention, beside a CUDA graph of cuBLAS and fused kernels, and a copy (needs a GPU)
    Chain(Program),
    /// Layers of a mixture of experts, routed on the device, beside PyTorch if `python3` has it (needs a GPU)
    Moe(Program),
    /// Tasks without work, chains, hops between CTAs, random work dealt, copies (needs a GPU)
    Dispatch(Program),
    /// What it costs that one phase waits for another, beside CUDA graphs and a grid barrier (needs a GPU)
    Boundary(Program),
    /// Sums over ranks inside of a megakernel, and collectives outside of one, beside NCCL's in CUDA graphs (needs two GPUs)
    Comm(RankProgram),
    /// Tensor-parallel MLPs with their all-reduce in one megakernel, beside cuBLASLt and then NCCL in a CUDA graph (needs two GPUs)
    Overlap(RankProgram),
    /// Making a plan: tasks, dependencies, schedules
    Plan(Program),
    /// What builds cost, each against its limit: of a user's package; of CI, bundles and one test in clean clones; the longest piece in `ptxas`.
    /// Everything takes hours, see `--only`
    Build(build::Options),
}

/// A program of `benches/`.
#[derive(clap::Args)]
pub struct Program {
    /// Write the rows here as JSON
    #[arg(long)]
    json: Option<PathBuf>,
    /// How often each system is measured per case; by default the program's own number
    #[arg(long)]
    rounds: Option<usize>,
    /// Arguments of the program, after `--`; `-- --help` shows them
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// A program of `benches/` whose ranks have a GPU each.
#[derive(clap::Args)]
pub struct RankProgram {
    /// Ranks; by default as many as there are GPUs
    #[arg(long)]
    ranks: Option<u32>,
    #[command(flatten)]
    program: Program,
}

/// Measures.
pub fn bench(bench: &Bench) -> Result<(), Failure> {
    match bench {
        Bench::Comm(program) => program.run("comm"),
        Bench::Overlap(program) => program.run("overlap"),
        Bench::Gemm(program) => program.run("gemm"),
        Bench::Mlp(program) => program.run("mlp"),
        Bench::Memory(program) => program.run("memory"),
        Bench::Gemv(program) => program.run("gemv"),
        Bench::Chain(program) => program.run("chain"),
        Bench::Moe(program) => program.run("moe"),
        Bench::Dispatch(program) => program.run("dispatch"),
        Bench::Boundary(program) => program.run("boundary"),
        Bench::Plan(program) => program.run("plan"),
        Bench::Build(options) => build::measure(options),
    }
}

/// What to measure of a GPU.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Tune {
    #[command(flatten)]
    model: Model,
    #[command(subcommand)]
    what: Option<Tuned>,
}

#[derive(Subcommand)]
enum Tuned {
    /// Which tiles and parts of GEMMs are the fastest, each measured by itself
    Tiles(Tiles),
    /// Which ways of collectives inside a megakernel are the fastest, by size: packets, one-shot, two-shot, NCCL beside the kernel (needs two GPUs)
    Ways(Ways),
}

/// The device model.
#[derive(clap::Args)]
struct Model {
    /// The tuning file: its model is replaced, its tiles and ways stay
    #[arg(long, default_value = "tuning.json")]
    out: PathBuf,
    /// How often each case is measured; by default the program's own number
    #[arg(long)]
    rounds: Option<usize>,
}

/// What to measure tiles of.
#[derive(clap::Args)]
struct Tiles {
    /// The tuning file: what is there already stays, unless it is about the same GEMMs
    #[arg(long, default_value = "tuning.json")]
    out: PathBuf,
    /// `linear`, `matmul`, `matmul-tn` or `matmul-tt`, several with commas between; without, all
    #[arg(long)]
    form: Option<String>,
    /// `bf16` or `f16`; without, both
    #[arg(long)]
    element: Option<String>,
    /// Rows, columns and depth of GEMMs, such as `256x8192x4096`; without, the shapes of `bench gemm` with up to 1024 rows
    shape: Vec<String>,
}

/// What to measure ways of.
#[derive(clap::Args)]
struct Ways {
    /// The tuning file: lines of the same collectives and number of ranks are replaced, all else stays
    #[arg(long, default_value = "tuning.json")]
    out: PathBuf,
    /// Ranks; by default as many as there are GPUs
    #[arg(long)]
    ranks: Option<u32>,
    /// How often each way is measured; by default the program's own number
    #[arg(long)]
    rounds: Option<usize>,
    /// KiB of the largest tensor of a call on a rank, several with commas between; by default 8 to 65536
    #[arg(long)]
    kib: Option<String>,
    /// `all-reduce`, `all-gather`, `reduce-scatter` or `all-to-all`, several with commas between; without, all
    #[arg(long)]
    only: Option<String>,
}

impl Ways {
    fn program(&self) -> Result<RankProgram, Failure> {
        let mut arguments = vec!["--tuning".to_owned(), absolute(&self.out)?.to_string_lossy().into_owned()];
        let mut add = |option: &str, value: &String| arguments.extend([option.to_owned(), value.clone()]);
        self.kib.iter().for_each(|kib| add("--kib", kib));
        self.only.iter().for_each(|only| add("--only", only));
        Ok(RankProgram { ranks: self.ranks, program: Program { json: None, rounds: self.rounds, arguments } })
    }
}

/// Measures what a GPU costs; GEMMs in every tile, whole, in several numbers of parts and with the last wave in parts; or the ways of collectives.
pub fn tune(tune: &Tune) -> Result<(), Failure> {
    match &tune.what {
        None => {
            let arguments = vec!["--tuning".to_owned(), absolute(&tune.model.out)?.to_string_lossy().into_owned()];
            Program { json: None, rounds: tune.model.rounds, arguments }.run("tune")
        }
        Some(Tuned::Tiles(tiles)) => {
            let mut arguments = vec!["--tuning".to_owned(), absolute(&tiles.out)?.to_string_lossy().into_owned()];
            let mut add = |option: &str, value: &String| arguments.extend([option.to_owned(), value.clone()]);
            tiles.form.iter().for_each(|form| add("--form", form));
            tiles.element.iter().for_each(|element| add("--element", element));
            tiles.shape.iter().for_each(|shape| add("--shape", shape));
            Program { json: None, rounds: None, arguments }.run("tune_tiles")
        }
        Some(Tuned::Ways(ways)) => ways.program()?.run("tune_ways"),
    }
}

impl Program {
    fn run(&self, name: &str) -> Result<(), Failure> {
        run(&mut self.command(name, &[])?)
    }

    /// What runs it, with `more` before the arguments of the user.
    fn command(&self, name: &str, more: &[String]) -> Result<Command, Failure> {
        let mut command = cargo(&["run", "--release", "--bin", name, "--manifest-path"]);
        command.arg(root().join("benches/Cargo.toml")).arg("--");
        if let Some(json) = &self.json {
            command.arg("--json").arg(absolute(json)?);
        }
        if let Some(rounds) = self.rounds {
            command.args(["--rounds", &rounds.to_string()]);
        }
        command.args(more).args(&self.arguments);
        Ok(command)
    }
}

impl RankProgram {
    fn run(&self, name: &str) -> Result<(), Failure> {
        run(&mut self.command(name)?)
    }

    fn command(&self, name: &str) -> Result<Command, Failure> {
        let ranks = self.ranks.map(|ranks| vec!["--ranks".to_owned(), ranks.to_string()]);
        let mut command = self.program.command(name, &ranks.unwrap_or_default())?;
        let (variable, value) = NO_MULTICAST;
        command.env(variable, value);
        Ok(command)
    }
}

/// The program runs in the root, the user need not.
fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(Failure::io("resolve", path))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(subcommand)]
        bench: Bench,
    }

    /// How the program is called for `bench` and these words, behind cargo's `--`, and what NCCL is told.
    fn called(words: &[&str]) -> (Vec<String>, Option<String>) {
        let line = Line::try_parse_from([&["bench"], words].concat()).unwrap_or_else(|error| panic!("{error}"));
        let (name, command) = match line.bench {
            Bench::Comm(program) => ("comm", program.command("comm")),
            Bench::Overlap(program) => ("overlap", program.command("overlap")),
            Bench::Gemm(program) => ("gemm", program.command("gemm", &[])),
            _ => panic!("{words:?}"),
        };
        let command = command.unwrap_or_else(|failure| panic!("{failure}"));
        let arguments: Vec<String> = command.get_args().map(|argument| argument.to_string_lossy().into_owned()).collect();
        assert!(arguments.iter().any(|argument| argument == name), "{arguments:?}");
        let told = command.get_envs().find(|(variable, _)| *variable == "NCCL_NVLS_ENABLE").and_then(|(_, value)| value);
        let begin = arguments.iter().position(|argument| argument == "--").expect("cargo's `--`");
        (arguments[begin + 1..].to_vec(), told.map(|value| value.to_string_lossy().into_owned()))
    }

    #[test]
    fn ranks_are_told_and_nccl_uses_no_multicast() {
        let off = Some("0".to_owned());
        for bench in ["comm", "overlap"] {
            assert_eq!(called(&[bench]), (vec![], off.clone()));
            let words = [bench, "--rounds", "3", "--ranks", "2", "--", "--only", "outside"];
            assert_eq!(called(&words), (["--rounds", "3", "--ranks", "2", "--only", "outside"].map(String::from).to_vec(), off.clone()));
        }
        assert_eq!(called(&["gemm", "--", "--sweep"]), (vec!["--sweep".to_owned()], None));
        assert!(Line::try_parse_from(["bench", "gemm", "--ranks", "2"]).is_err());
    }

    #[derive(Parser)]
    struct TuneLine {
        #[command(flatten)]
        tune: Tune,
    }

    #[test]
    fn ways_are_tuned_in_the_users_file_without_multicast() {
        let words = ["tune", "ways", "--out", "/some/file.json", "--ranks", "2", "--rounds", "7", "--kib", "8,64", "--only", "all-reduce"];
        let line = TuneLine::try_parse_from(words).unwrap_or_else(|error| panic!("{error}"));
        let Some(Tuned::Ways(ways)) = line.tune.what else { panic!("{words:?}") };
        let command = ways.program().and_then(|program| program.command("tune_ways")).unwrap_or_else(|failure| panic!("{failure}"));
        let arguments: Vec<String> = command.get_args().map(|argument| argument.to_string_lossy().into_owned()).collect();
        let begin = arguments.iter().position(|argument| argument == "--").expect("cargo's `--`");
        assert!(arguments[..begin].contains(&"tune_ways".to_owned()), "{arguments:?}");
        let expected = ["--rounds", "7", "--ranks", "2", "--tuning", "/some/file.json", "--kib", "8,64", "--only", "all-reduce"];
        assert_eq!(arguments[begin + 1..], expected);
        assert!(command.get_envs().any(|(variable, value)| variable == "NCCL_NVLS_ENABLE" && value == Some("0".as_ref())));
    }
}
