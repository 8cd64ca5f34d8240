//! `MACO_GRAPH=dir`: every plan as text, DOT and JSON. The formats are `maco-graph`'s.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use maco_graph::plan::Plan;

use crate::error::Error;

/// Writes the files if the variable is set.
pub(crate) fn write_if_asked(plan: &Plan) -> Result<(), Error> {
    match std::env::var_os("MACO_GRAPH") {
        Some(directory) if !directory.is_empty() => write(plan, Path::new(&directory)),
        _ => Ok(()),
    }
}

/// `mlp.txt`, `mlp.dot`, `mlp.json`; later plans of the name get a number: `mlp-2.txt`.
fn write(plan: &Plan, directory: &Path) -> Result<(), Error> {
    static PLANS: Mutex<Option<HashMap<(PathBuf, String), u32>>> = Mutex::new(None);
    let name: String = plan.graph.name.chars().map(|c| if c.is_alphanumeric() || c == '_' { c } else { '_' }).collect();
    let number = {
        let mut plans = PLANS.lock().unwrap_or_else(PoisonError::into_inner);
        let number = plans.get_or_insert_default().entry((directory.into(), name.clone())).or_insert(0);
        *number += 1;
        *number
    };
    let stem = if number == 1 { name } else { format!("{name}-{number}") };
    std::fs::create_dir_all(directory).map_err(|source| Error::GraphFile { path: directory.into(), source })?;
    for (extension, text) in [("txt", plan.to_string()), ("dot", plan.dot()), ("json", plan.json())] {
        let path = directory.join(format!("{stem}.{extension}"));
        std::fs::write(&path, text).map_err(|source| Error::GraphFile { path: path.clone(), source })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use maco_graph::ir;
    use maco_graph::plan::{Options, plan};

    #[test]
    fn three_files_per_plan_and_a_number_per_repetition() {
        let directory = std::env::temp_dir().join(format!("maco-graph-files-{}", std::process::id()));
        let graph = ir::Graph { name: "mlp::<4>".into(), ..ir::Graph::default() };
        let plan = plan(graph, &Options::new(1)).unwrap();
        write(&plan, &directory).unwrap();
        write(&plan, &directory).unwrap();
        for stem in ["mlp___4_", "mlp___4_-2"] {
            assert_eq!(std::fs::read_to_string(directory.join(format!("{stem}.txt"))).unwrap(), plan.to_string());
            assert_eq!(std::fs::read_to_string(directory.join(format!("{stem}.dot"))).unwrap(), plan.dot());
            assert_eq!(std::fs::read_to_string(directory.join(format!("{stem}.json"))).unwrap(), plan.json());
        }
        let file = directory.join("mlp___4_.txt");
        let error = write(&plan, &file).unwrap_err();
        assert_eq!(error.code(), 57, "a file is no directory: {error}");
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
