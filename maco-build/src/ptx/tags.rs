//! What device code says that its instructions are for: comments `// maco: …` in inline assembly. What then must hold does not belong here.

use maco_ptx::{Function, Kind};

use super::lint::Report;

/// Every tag, and how the instructions begin that it may stand at. `docs/internals/ptx_lint.md` says what each means.
const TAGS: [(&str, &[&str]); 30] = [
    ("claim.gpu", &["atom.relaxed.gpu.global.cas."]),
    ("clear.gpu", &["red.relaxed.gpu.global.and."]),
    ("elementwise", &["st.shared.v4."]),
    ("get.sys", &["ld.relaxed.sys.global."]),
    ("give_up", &["bar.warp.sync"]),
    ("in_band.load", &["ld.relaxed.gpu.global.v4."]),
    ("in_band.store", &["st.relaxed.gpu.global."]),
    ("message.gpu", &["st.relaxed.gpu.global."]),
    ("packet.load", &["ld.relaxed.sys.global.u64", "ld.relaxed.sys.global.v2.u64"]),
    ("packet.store", &["st.relaxed.sys.global.u64", "st.relaxed.sys.global.v2.u64"]),
    ("part.arrive", &["atom.relaxed.gpu.global.add."]),
    ("part.leave", &["atom.relaxed.gpu.global.or."]),
    ("put.sys", &["st.relaxed.sys.global."]),
    ("receive", &["st.shared.v4."]),
    ("report.end", &["st.release.sys."]),
    ("report.word", &["st.relaxed.sys."]),
    ("rmsnorm.factor", &["st.shared.", "ld.shared."]),
    ("rmsnorm.sum", &["st.shared.", "ld.shared."]),
    ("scratch", &["ld.weak.shared.", "st.weak.shared.", "mbarrier.", "cp.async.bulk."]),
    ("signal.gpu", &["red.relaxed.gpu.global.add.", "st.relaxed.gpu.global."]),
    ("signal.sys", &["st.release.sys.global."]),
    ("stop.sys", &["atom.relaxed.sys.global.cas."]),
    ("table.raise", &["red.relaxed.cta.shared.max."]),
    ("tell.sys", &["st.relaxed.sys.global."]),
    ("ticket.gpu", &["atom.relaxed.gpu.global.add."]),
    ("trigger.sys", &["st.relaxed.sys.global.v2.u64"]),
    ("wait.ahead", &["ld.relaxed.gpu.global."]),
    ("wait.alone", &["ld.relaxed.gpu.global."]),
    ("wait.gpu", &["ld.relaxed.gpu.global."]),
    ("wait.sys", &["ld.relaxed.sys.global."]),
];

/// How instructions begin that have one in megakernels: what they order depends on what they are for.
const TAGGED: [&str; 10] = [
    "atom.relaxed.gpu.global.",
    "atom.relaxed.sys.",
    "ld.relaxed.gpu.global.",
    "ld.relaxed.sys.",
    "red.relaxed.cta.shared.max.",
    "red.relaxed.gpu.global.",
    "st.relaxed.gpu.global.",
    "st.relaxed.sys.",
    "st.release.sys.",
    "st.weak.shared.",
];

/// Tags that there are, where they may be, and, of code of a megakernel, everywhere where one is needed.
pub(super) fn check(function: &Function<'_>, of_megakernel: bool, report: &mut Report<'_>) {
    for statement in function.body.iter().filter(|statement| statement.kind == Kind::Instruction) {
        let opcode = statement.opcode();
        let begins = |starts: &[&str]| starts.iter().any(|start| opcode.starts_with(start));
        match statement.tag {
            Some(tag) => match TAGS.iter().find(|(name, _)| *name == tag) {
                None => report.add(statement, format!("there is no tag `{tag}`: `docs/internals/ptx_lint.md` has those that there are")),
                Some((_, starts)) if !begins(starts) => {
                    report.add(statement, format!("`{opcode}` is tagged `{tag}`, which is for `{}`", starts.join("…`, `") + "…"));
                }
                Some(_) => {}
            },
            None if of_megakernel && begins(&TAGGED) => {
                report.add(
                    statement,
                    format!("`{opcode}` does not say what it is for: `// maco: TAG` belongs before it, see `docs/internals/ptx_lint.md`"),
                );
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ptx::{Rules, lint};

    fn found(name: &str, body: &str) -> Vec<String> {
        let ptx = format!(".version 8.6\n.visible .entry {name}(\n)\n{{\n{body}\nret;\n}}\n");
        let findings = lint::check(&ptx, &Rules::default()).into_iter().map(|finding| finding.text);
        findings.filter(|text| text.contains("tag") || text.contains("what it is for")).collect()
    }

    #[test]
    fn tags_are_known_and_stand_at_their_instructions() {
        for (tag, starts) in TAGS {
            assert_eq!(
                found("k", &starts.iter().map(|start| format!("// maco: {tag}\n{start}x [%r1], %r2;\n")).collect::<String>()),
                [""; 0]
            );
            assert!(found("k", &format!("// maco: {tag}\nadd.s32 %r1, %r2, %r3;"))[0].contains("is tagged"), "{tag}");
        }
        assert!(found("k", "// maco: wait.host\nld.relaxed.gpu.global.u32 %r1, [%rd1];")[0].contains("no tag `wait.host`"));
        assert!(found("k", "// maco: wait.gpu\n// maco: wait.alone\nld.relaxed.gpu.global.u32 %r1, [%rd1];")[0].contains("line 5"));
        assert!(found("k", "ret; // maco: wait.gpu").len() == 1 && found("k", "$L: // maco: wait.gpu\n").len() == 1);
    }

    #[test]
    fn instructions_of_megakernels_say_what_they_are_for() {
        for start in TAGGED {
            let body = format!("// begin inline asm\n{start}x [%r1], %r2;\n// end inline asm");
            assert!(found("maco_k", &body).iter().any(|text| text.contains("what it is for")), "{start}");
            assert_eq!(found("k", &body), [""; 0], "{start}");
        }
    }

    #[test]
    fn every_tag_is_written_down() {
        let page = include_str!("../../../docs/internals/ptx_lint.md");
        let rows: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
        assert_eq!(rows, TAGS.map(|(tag, _)| tag));
    }
}
