//! Reference XML parser: expat, used by many clients, run through Python. XML 1.0 with the name rules of its fourth
//! edition, and Namespaces in XML 1.0. It shares no code with this server.
//!
//! Not implemented: the content of a document; the result is only whether it can be parsed.
//!
//! # Pitfalls
//!
//! Expat joins namespace name and local name with a separator that the application chooses, and rejects namespace names
//! that contain it. So each document is parsed once with each separator that clients use.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Protocol: a request is a letter, a length and as many bytes. `D` is a document; the answer is a line, empty if it
/// can be parsed. `N` answers with a digit per code point below 65 536: 1 if a name may begin with it, plus 2 if a name
/// may contain it.
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

/// Python process that parses with expat.
pub struct Expat {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Expat {
    /// Starts the process.
    ///
    /// # Panics
    /// If there is no `python3`.
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

    /// Parses a whole document.
    ///
    /// # Errors
    /// The reason for which expat rejects it.
    ///
    /// # Panics
    /// If the process has ended.
    pub fn read(&mut self, document: &[u8]) -> Result<(), String> {
        self.ask(b'D', document);
        let mut line = String::new();
        self.from.read_line(&mut line).expect("python answers");
        match line.strip_suffix('\n').expect("python answers") {
            "" => Ok(()),
            fault => Err(fault.to_owned()),
        }
    }

    /// For each code point below 65 536: may a name begin with it, and may a name contain it? Colons are excluded.
    ///
    /// # Panics
    /// If the process has ended.
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
