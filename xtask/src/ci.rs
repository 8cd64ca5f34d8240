//! What CI runs: every test and every check, at once.

use crate::failure::Failure;
use crate::packages::suites;
use crate::queue;
use crate::test::{self, Tally};
use crate::{fetch, gpu, lint, setup};

/// `test` and `lint`. Without a GPU what compiles is one after another, and beside it whatever is there already runs: tests, and then the assembler.
pub fn ci() -> Result<(), Failure> {
    setup::setup(false)?;
    let suites = suites()?;
    let mut failed = match gpu::count() {
        Ok(_) => {
            let mut failed = test::with_gpu(&suites, &test::Options::default());
            failed.extend(lint::before_ptx(&suites));
            failed
        }
        Err(why) => {
            let tally = Tally::default();
            let (began, checks) = queue::with(|queue| {
                let began = test::begin(&suites, &test::Options::default(), queue, &tally);
                // Not before everything is built: build scripts that find an assembler put machine code into programs.
                let assembled =
                    fetch::ptxas().and_then(|assembler| suites.iter().try_for_each(|suite| lint::ptx::put(suite, &assembler, queue)));
                if let Err(failure) = assembled {
                    eprintln!("{failure}"); // `last` says it again
                }
                (began, lint::before_ptx(&suites))
            });
            let mut failed = tally.end(began, why);
            failed.extend(checks);
            failed
        }
    };
    failed.extend(lint::last(&suites));
    if failed.is_empty() { Ok(()) } else { Err(Failure::Checks(failed)) }
}
