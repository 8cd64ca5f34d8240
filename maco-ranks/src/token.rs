//! The secret by which the ranks of a job know each other over TCP. It is never sent: each side proves that it has it.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use crate::error::Error;

const VARIABLE: &str = "MACO_TOKEN";
const HELP: &str = "make one per job, such as `export MACO_TOKEN=$(openssl rand -hex 32)`, and give it to the processes of all ranks";
/// Fewer bytes are guessed too easily.
const SHORTEST: usize = 16;

/// Random bytes that the side which is to prove itself has not chosen.
pub(crate) type Nonce = [u8; 32];
/// What only a holder of the token can make of a nonce.
pub(crate) type Proof = [u8; 32];

/// The secret of a job. It can be neither printed nor cloned.
pub struct Token(Box<[u8]>);

impl Token {
    /// A token of these bytes.
    ///
    /// # Errors
    /// MACO0093 for fewer than 16.
    pub fn new(bytes: &[u8]) -> Result<Token, Error> {
        if bytes.len() < SHORTEST {
            let fault = format!("has {} bytes, at least {SHORTEST} are needed", bytes.len()).into();
            return Err(Error::Environment { variable: VARIABLE, fault, help: HELP });
        }
        Ok(Token(bytes.into()))
    }

    /// That of the environment.
    pub(crate) fn of_environment(value: Option<&str>) -> Result<Token, Error> {
        match value.map(str::trim) {
            None | Some("") => {
                let fault = "is not set, and ranks that meet over TCP need it: whoever reaches the port could join the job".into();
                Err(Error::Environment { variable: VARIABLE, fault, help: HELP })
            }
            Some(token) => Token::new(token.as_bytes()),
        }
    }
}

/// Who proves: what one side sends cannot be sent back to it as the other's.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    Hub,
    Rank,
}

/// A connection as both ends see it.
#[derive(Clone, Copy)]
pub(crate) struct Exchange {
    pub(crate) of_hub: Nonce,
    pub(crate) of_rank: Nonce,
    pub(crate) rank: u32,
    pub(crate) ranks: u32,
    pub(crate) number: u32,
}

impl Exchange {
    /// What `side` sends. Without a token, on one host, where the system says who is on the other end, zeros.
    pub(crate) fn proof(&self, token: Option<&Token>, side: Side) -> Proof {
        let Some(token) = token else { return [0; 32] };
        let mut mac = Hmac::<Sha256>::new_from_slice(&token.0).expect("HMAC takes keys of any length");
        mac.update(match side {
            Side::Hub => b"maco hub",
            Side::Rank => b"maco rank",
        });
        mac.update(&self.of_hub);
        mac.update(&self.of_rank);
        for number in [self.rank, self.ranks, self.number] {
            mac.update(&number.to_le_bytes());
        }
        mac.finalize().into_bytes().into()
    }

    /// Whether `proof` is what `side` sends, in a time that does not depend on where they differ.
    pub(crate) fn proves(&self, token: Option<&Token>, side: Side, proof: &Proof) -> bool {
        self.proof(token, side).ct_eq(proof).into()
    }
}

/// 32 bytes of the system's random numbers.
pub(crate) fn nonce() -> std::io::Result<Nonce> {
    let mut nonce = [0; 32];
    let mut filled = 0;
    while filled < nonce.len() {
        filled += rustix::rand::getrandom(&mut nonce[filled..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(nonce)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_holds_for_its_token_side_and_connection_alone() {
        let [one, other] = [b"0123456789abcdef", b"0123456789abcdeF"].map(|bytes| Token::new(bytes).unwrap());
        let exchange = Exchange { of_hub: nonce().unwrap(), of_rank: nonce().unwrap(), rank: 1, ranks: 4, number: 0 };
        let proof = exchange.proof(Some(&one), Side::Rank);
        assert!(exchange.proves(Some(&one), Side::Rank, &proof));
        assert!(!exchange.proves(Some(&other), Side::Rank, &proof));
        assert!(!exchange.proves(Some(&one), Side::Hub, &proof), "an echo proves nothing");
        assert!(!Exchange { rank: 2, ..exchange }.proves(Some(&one), Side::Rank, &proof));
        assert!(!Exchange { of_hub: nonce().unwrap(), ..exchange }.proves(Some(&one), Side::Rank, &proof), "a replay proves nothing");
        assert!(!exchange.proves(Some(&one), Side::Rank, &[0; 32]));
    }

    #[test]
    fn a_token_is_there_and_long_enough() {
        for (value, words) in [(None, "is not set"), (Some(" "), "is not set"), (Some("fifteen bytes.."), "has 15 bytes")] {
            let error = Token::of_environment(value).err().unwrap();
            assert!(error.code() == 93 && error.to_string().contains(words) && error.to_string().contains("MACO_TOKEN"), "{error}");
        }
        let secret = "short secret";
        assert!(!Token::of_environment(Some(secret)).err().unwrap().to_string().contains(secret));
        assert!(Token::of_environment(Some("0123456789abcdef\n")).is_ok());
    }
}
