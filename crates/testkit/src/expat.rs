//! Expat, the XML parser of many clients, asked through Python: XML 1.0 with the names of its fourth edition, and Namespaces
//! in XML 1.0. It shares nothing with this server.
//!
//! Left out: what a document says; the answer is whether it can be read. The trap: expat joins a namespace name and a local
//! name with a character that its user chooses, and fails on a namespace name that has it. So each document is read once
//! with each of those that clients use.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A request is a letter, a length, and as many bytes. `D`: a document; the answer is a line, empty when it can be read. `N`:
/// the answer is a digit for each code point below 65 536; 1 if a name may begin with it, plus 2 if it may be in a name.
const SCRIPT: &str = r#"
import struct, sys
from xml.parsers import expat

def fault(document):
    # nbxmpp, ElementTree (slixmpp), Prosody, and one more that is in use.
    for separator in (" ", "}", "\x01", "|"):
        try:
            expat.ParserCreate("utf-8", separator).Parse(document, True)
        except expat.ExpatError as error:
            return "%s (separator %r)" % (error, separator)
    return ""

def good(text):
    try:
        return not fault(text.encode("utf-8"))
    except UnicodeEncodeError:
        return False

source, answers = sys.stdin.buffer, sys.stdout.buffer
while True:
    head = source.read(5)
    if len(head) < 5:
        break
    length = struct.unpack(">I", head[1:])[0]
    body = source.read(length)
    if head[:1] == b"D":
        answers.write((fault(body).replace("\n", " ") + "\n").encode("utf-8"))
    else:
        for code in range(0x10000):
            c = chr(code)
            if c in "/>\t\n\r ":
                # They end the name.
                answers.write(b"0")
            else:
                answers.write(b"%d" % (good("<%s/>" % c) + 2 * good("<a%s/>" % c)))
    answers.flush()
"#;

/// A Python that reads with expat.
pub struct Expat {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Expat {
    /// Starts it.
    ///
    /// # Panics
    /// If there is no `python3`.
    #[must_use]
    pub fn start() -> Expat {
        let mut child = Command::new("python3")
            .args(["-c", SCRIPT])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("these tests need python3, whose expat reads what the server writes");
        let to = child.stdin.take().expect("a pipe");
        let from = BufReader::new(child.stdout.take().expect("a pipe"));
        Expat { child, to, from }
    }

    fn ask(&mut self, kind: u8, body: &[u8]) {
        let length = u32::try_from(body.len()).expect("a document of less than 4 GB");
        let head = [&[kind], &length.to_be_bytes()[..]].concat();
        self.to.write_all(&head).and_then(|()| self.to.write_all(body)).expect("python reads");
        self.to.flush().expect("python reads");
    }

    /// Reads a whole document.
    ///
    /// # Errors
    /// Why expat cannot read it.
    ///
    /// # Panics
    /// If Python is gone.
    pub fn read(&mut self, document: &[u8]) -> Result<(), String> {
        self.ask(b'D', document);
        let mut line = String::new();
        self.from.read_line(&mut line).expect("python answers");
        match line.strip_suffix('\n').expect("python answers") {
            "" => Ok(()),
            fault => Err(fault.to_owned()),
        }
    }

    /// Of each code point below 65 536: may a name begin with it, and may it stand in a name? No colons.
    ///
    /// # Panics
    /// If Python is gone.
    pub fn names(&mut self) -> Vec<(bool, bool)> {
        self.ask(b'N', b"");
        let mut digits = vec![0; 0x10000];
        self.from.read_exact(&mut digits).expect("python answers");
        digits.iter().map(|digit| (digit & 1 != 0, digit & 2 != 0)).collect()
    }
}

impl Drop for Expat {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
