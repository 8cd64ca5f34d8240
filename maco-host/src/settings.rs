//! What a program may set from outside: one table of values, each with its variable of the environment.
//!
//! What the values do is said where they go to: plans, communicators and devices, through [`Context`](crate::Context).

use std::ffi::OsString;
use std::time::Duration;

use maco_graph::plan::{OverlapMode, Schedule};
use maco_graph::spec::Via;

use crate::environment::{bytes, count, seconds, switch, value};
use crate::error::Error;

/// Which devices a [`Context`](crate::Context) takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Backend {
    /// A GPU if there is one for which this program has code, else the CPU.
    #[default]
    Automatic,
    /// Threads of this machine.
    Cpu,
    /// The GPU of the rank's number on its host; the first one without ranks.
    Gpu,
}

macro_rules! settings {
    ($($(#[$doc:meta])* $name:ident: $value:ty = $variable:literal, $expected:literal, $parse:expr;)*) => {
        /// What a [`Context`](crate::Context) is made by. What is not set is read from the environment; what the environment does not say either is the default.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Settings {
            $(pub(crate) $name: Option<$value>,)*
        }

        impl Settings {
            /// The variables of all values, with what they may be.
            pub const VARIABLES: &'static [(&'static str, &'static str)] = &[$(($variable, $expected)),*];

            $(
                $(#[$doc])*
                #[doc = ""]
                #[doc = concat!("Variable `", $variable, "`: ", $expected, ".")]
                #[must_use]
                pub fn $name(mut self, $name: $value) -> Settings {
                    self.$name = Some($name);
                    self
                }
            )*

            /// With what `variables` say of values that are not set. A value that is set is not looked for.
            fn or(self, variables: impl Fn(&str) -> Option<OsString>) -> Result<Settings, Error> {
                Ok(Settings {
                    $($name: match self.$name {
                        Some(set) => Some(set),
                        None => value($variable, variables($variable), $expected, $parse)?,
                    },)*
                })
            }
        }
    };
}

settings! {
    /// Which devices plans are for.
    backend: Backend = "MACO_BACKEND", "`automatic`, `cpu` or `gpu`", backend_of;
    /// How tasks reach the workers: [`PlanOptions::schedule`](crate::PlanOptions::schedule).
    policy: Schedule = "MACO_POLICY", "`static`, `tickets`, `schedulers:N` or `spare-warps:N`", policy_of;
    /// How tiles of collectives go that do not say it: [`PlanOptions::via`](crate::PlanOptions::via).
    strategy: Via = "MACO_STRATEGY", "`automatic`, `one-shot` or `two-shot`", strategy_of;
    /// Which collectives wait beside calls that need nothing of them: [`PlanOptions::overlap`](crate::PlanOptions::overlap).
    overlap: OverlapMode = "MACO_OVERLAP", "`as-said`, `always` or `never`", overlap_of;
    /// Multiprocessors that compute: [`SmConfig::split`](crate::SmConfig::split).
    compute_sms: u32 = "MACO_COMPUTE_SMS", "a number of multiprocessors, one or more", count;
    /// Multiprocessors that communicate, behind those that compute: [`SmConfig::split`](crate::SmConfig::split).
    comm_sms: u32 = "MACO_COMM_SMS", "a number of multiprocessors, one or more", count;
    /// Bytes of each rank for the messages of all plans: [`Communicator::set_message_memory`](crate::Communicator::set_message_memory). The same on all ranks.
    buffer_size: usize = "MACO_BUFFER_SIZE", "bytes, such as `67108864` or `64MiB`", bytes;
    /// Bytes of page-locked memory for copies between host and GPU: [`Device::set_pinned_memory`](crate::Device::set_pinned_memory).
    pinned_memory: usize = "MACO_PINNED_MEMORY", "bytes, such as `8388608` or `8MiB`", bytes;
    /// How long one wait may last: [`PlanOptions::deadline`](crate::PlanOptions::deadline), and among ranks
    /// [`Communicator::set_deadline`](crate::Communicator::set_deadline). `MACO_DEADLINE_SCALE` multiplies it.
    deadline: Duration = "MACO_DEADLINE", "seconds above 0, such as `10` or `0.5`", seconds;
    /// Whether plans show what reads memory that it has not written: [`PlanOptions::debug`](crate::PlanOptions::debug).
    debug: bool = "MACO_DEBUG", "`0` or `1`", switch;
    /// Whether plans record from the first launch on: [`PlanOptions::profile`](crate::PlanOptions::profile). On a GPU the program is also built with the variable.
    profile: bool = "MACO_PROFILE", "`0` or `1`", switch;
}

impl Settings {
    /// Nothing is set.
    pub fn new() -> Settings {
        Settings::default()
    }

    /// With what the environment says of values that are not set: their variables are not read where they are.
    ///
    /// # Errors
    /// MACO0058 for a variable that is wrong, with its value and what is allowed.
    pub fn or_environment(self) -> Result<Settings, Error> {
        self.or(|variable| std::env::var_os(variable))
    }
}

fn backend_of(text: &str) -> Option<Backend> {
    match text {
        "automatic" => Some(Backend::Automatic),
        "cpu" => Some(Backend::Cpu),
        "gpu" => Some(Backend::Gpu),
        _ => None,
    }
}

fn policy_of(text: &str) -> Option<Schedule> {
    match text.split_once(':') {
        None if text == "static" => Some(Schedule::Static),
        None if text == "tickets" => Some(Schedule::Tickets),
        Some(("schedulers", number)) => count(number).map(Schedule::Schedulers),
        Some(("spare-warps", number)) => count(number).map(Schedule::SpareWarps),
        _ => None,
    }
}

fn strategy_of(text: &str) -> Option<Via> {
    match text {
        "automatic" => Some(Via::Automatic),
        "one-shot" => Some(Via::OneShot),
        "two-shot" => Some(Via::TwoShot),
        _ => None,
    }
}

fn overlap_of(text: &str) -> Option<OverlapMode> {
    match text {
        "as-said" => Some(OverlapMode::AsSaid),
        "always" => Some(OverlapMode::Always),
        "never" => Some(OverlapMode::Never),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value of each variable, and what it sets.
    fn all() -> ([(&'static str, &'static str); 11], Settings) {
        let variables = [
            ("MACO_BACKEND", "cpu"),
            ("MACO_POLICY", "schedulers:4"),
            ("MACO_STRATEGY", "two-shot"),
            ("MACO_OVERLAP", "always"),
            ("MACO_COMPUTE_SMS", "120"),
            ("MACO_COMM_SMS", "12"),
            ("MACO_BUFFER_SIZE", "256MiB"),
            ("MACO_PINNED_MEMORY", "16MiB"),
            ("MACO_DEADLINE", "0.5"),
            ("MACO_DEBUG", "1"),
            ("MACO_PROFILE", "0"),
        ];
        let settings = Settings::new()
            .backend(Backend::Cpu)
            .policy(Schedule::Schedulers(4))
            .strategy(Via::TwoShot)
            .overlap(OverlapMode::Always)
            .compute_sms(120)
            .comm_sms(12)
            .buffer_size(256 << 20)
            .pinned_memory(16 << 20)
            .deadline(Duration::from_millis(500))
            .debug(true)
            .profile(false);
        (variables, settings)
    }

    fn of(variables: &[(&str, &str)]) -> impl Fn(&str) -> Option<OsString> {
        move |name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into())
    }

    #[test]
    fn every_value_has_a_variable() {
        let (variables, settings) = all();
        assert_eq!(variables.map(|(name, _)| name), Settings::VARIABLES.iter().map(|(name, _)| *name).collect::<Vec<_>>()[..]);
        assert_eq!(Settings::new().or(of(&variables)).unwrap(), settings);
        assert_eq!(Settings::new().or(of(&[])).unwrap(), Settings::default());
    }

    #[test]
    fn what_is_set_has_precedence_over_the_environment() {
        let (_, settings) = all();
        // Nobody reads them.
        let wrong = Settings::VARIABLES.iter().map(|(name, _)| (*name, "wrong")).collect::<Vec<_>>();
        assert_eq!(settings.clone().or(of(&wrong)).unwrap(), settings);
        let mixed = Settings::new().debug(false).or(of(&[("MACO_DEBUG", "1"), ("MACO_COMM_SMS", "3")])).unwrap();
        assert_eq!(mixed, Settings::new().debug(false).comm_sms(3));
    }

    #[test]
    fn a_wrong_value_names_variable_value_and_what_is_allowed() {
        for &(name, expected) in Settings::VARIABLES {
            for wrong in ["", "wrong", "-1", "schedulers:0", "schedulers:", "CPU"] {
                let error = Settings::new().or(of(&[(name, wrong)])).unwrap_err();
                let text = format!("MACO0058: {name} is `{wrong}`, expected {expected}\nhelp: correct or unset it");
                assert_eq!((error.code(), error.to_string()), (58, text));
            }
        }
    }
}
