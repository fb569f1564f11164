//! Prompt for a secret: on a terminal twice and without echo, otherwise one line of standard input.
//!
//! The terminal is read key by key with echo and signals off, like `getpass`, so that Ctrl-C ends the prompt with the
//! terminal restored.
//!
//! Not implemented: keys that move the cursor; backspace and Ctrl-U are supported.
//!
//! # Pitfalls
//!
//! Every exit of this function must restore the terminal, or the shell shows nothing of the text typed next.

use std::io::{BufRead, IsTerminal, Read, Stdin};

use anyhow::{Context, Result, bail};
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};

use crate::output;

/// Prompts for a password; `whose` is shown.
pub(crate) fn password(whose: &str) -> Result<String> {
    secret(&format!("password for {whose}"))
}

/// Prompts for a secret; `what` is shown.
pub(crate) fn secret(what: &str) -> Result<String> {
    let stdin = std::io::stdin();
    let typed = if stdin.is_terminal() {
        let typed = read_hidden(&stdin, &format!("{what}: "))?;
        if !typed.is_empty() && read_hidden(&stdin, "repeat it: ")? != typed {
            bail!("the two entries differ; nothing was changed");
        }
        typed
    } else {
        let mut line = String::new();
        stdin.lock().read_line(&mut line).context("cannot read standard input")?;
        line.trim_end_matches(['\r', '\n']).to_owned()
    };
    if typed.is_empty() {
        bail!("the input is empty; write one line to standard input");
    }
    Ok(typed)
}

/// Disables the terminal's echo until it is dropped.
struct EchoOff<'a>(&'a Stdin, Termios);

impl<'a> EchoOff<'a> {
    fn new(stdin: &'a Stdin) -> Result<EchoOff<'a>> {
        let before = tcgetattr(stdin).context("cannot read the settings of the terminal")?;
        let mut modes = before.clone();
        modes.local_modes -= LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG;
        modes.special_codes[SpecialCodeIndex::VMIN] = 1;
        modes.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(stdin, OptionalActions::Flush, &modes)
            .context("cannot disable the echo of the terminal")?;
        Ok(EchoOff(stdin, before))
    }
}

impl Drop for EchoOff<'_> {
    fn drop(&mut self) {
        let _ = tcsetattr(self.0, OptionalActions::Flush, &self.1);
        // The line end was not echoed either.
        output::error("");
    }
}

fn read_hidden(stdin: &Stdin, question: &str) -> Result<String> {
    let echo_off = EchoOff::new(stdin)?;
    output::question(question);
    let typed = read_line(&mut echo_off.0.lock());
    drop(echo_off);
    typed
}

/// Reads a typed line.
fn read_line(keys: &mut impl Read) -> Result<String> {
    let mut typed = Vec::new();
    let mut key = [0];
    loop {
        if keys.read(&mut key).context("cannot read from the terminal")? == 0 {
            break;
        }
        match key[0] {
            b'\r' | b'\n' => break,
            // Ctrl-C and Ctrl-\.
            0x03 | 0x1c => bail!("interrupted; nothing was changed"),
            0x04 if typed.is_empty() => bail!("the input is empty; nothing was changed"),
            0x04 => break,
            // Ctrl-U.
            0x15 => typed.clear(),
            0x08 | 0x7f => {
                // A character, which may have several bytes.
                while typed.pop().is_some_and(|byte: u8| byte & 0xc0 == 0x80) {}
            }
            byte => typed.push(byte),
        }
    }
    String::from_utf8(typed).context("the password is not valid UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(keys: &str) -> Result<String> {
        read_line(&mut keys.as_bytes())
    }

    #[test]
    fn backspace_ctrl_u_and_return_edit_the_line() {
        assert_eq!(typed("secret\rmore").unwrap(), "secret");
        assert_eq!(typed("secrex\u{7f}t\n").unwrap(), "secret");
        assert_eq!(typed("\u{7f}\u{fc}\u{7f}\u{7f}pass\u{fc}\u{e4}\u{8}\n").unwrap(), "pass\u{fc}");
        assert_eq!(typed("wrong\u{15}right\n").unwrap(), "right");
        assert_eq!(typed("end\u{4}").unwrap(), "end");
        assert!(typed("sec\u{3}ret\n").unwrap_err().to_string().contains("interrupted"));
        assert!(typed("\u{4}").is_err());
    }
}
