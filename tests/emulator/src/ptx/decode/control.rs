//! Branches, calls, ends and pauses.

use super::instruction::Parsed;
use super::operands::Operand;
use super::*;

impl Body<'_, '_> {
    /// Whether it is one of these.
    pub(super) fn control(&mut self, p: &Parsed<'_>) -> Result<bool, String> {
        let &Parsed { base, operands: o, .. } = p;
        match base {
            "bra" => {
                let Operand::Name(label) = &o[0] else { return self.error("bra") };
                let at = self.decoder.here();
                self.fixes.push((at, label.clone()));
                self.emit(Op::Bra, |_| {});
            }
            "brx" => {
                let a = self.slot(&o[0], 4)?;
                let Operand::Name(table) = &o[1] else { return self.error("brx") };
                let at = self.decoder.here();
                self.tables.push((at, table.clone()));
                self.emit(Op::Brx, |inst| inst.a = a);
            }
            "call" => self.call(o)?,
            "ret" => {
                let back = self.back;
                self.emit(if self.entry { Op::Exit } else { Op::Ret }, |inst| inst.a = back);
            }
            "exit" => self.emit(Op::Exit, |_| {}),
            "trap" | "brkpt" => self.emit(Op::Trap, |_| {}),
            "nanosleep" => {
                let a = self.slot(&o[0], 4)?;
                self.emit(Op::Sleep, |inst| inst.a = a);
            }
            "pmevent" | "griddepcontrol" | "setmaxnreg" => self.emit(Op::Nop, |_| {}),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn call(&mut self, o: &[Operand]) -> Result<(), String> {
        let (mut results, mut name, mut parameters) = (Vec::new(), None, Vec::new());
        for operand in o {
            match operand {
                Operand::Names(names) if name.is_none() => results = names.clone(),
                Operand::Names(names) => parameters = names.clone(),
                Operand::Name(function) if name.is_none() => name = Some(function.clone()),
                Operand::Register(..) => return self.error("a call through a pointer"),
                _ => {}
            }
        }
        let Some(name) = name else { return self.error("call") };
        let known = self.decoder.function(&name)?;
        if known.parameters.len() != parameters.len() || known.results.len() != results.len() {
            return self.error(format!("arguments of `{name}`"));
        }
        for (parameter, &(to, bytes)) in parameters.iter().zip(&known.parameters) {
            let Some((from, _, _)) = self.parameter(parameter) else { return self.error(format!("`{parameter}`")) };
            self.emit(Op::CopyParam, |inst| (inst.d, inst.a, inst.x) = (to, from, bytes as i32));
        }
        self.emit(Op::Call, |inst| (inst.a, inst.x) = (known.back, known.start as i32));
        for (result, &(from, bytes)) in results.iter().zip(&known.results) {
            let Some((to, _, _)) = self.parameter(result) else { return self.error(format!("`{result}`")) };
            self.emit(Op::CopyParam, |inst| (inst.d, inst.a, inst.x) = (to, from, bytes as i32));
        }
        Ok(())
    }
}
