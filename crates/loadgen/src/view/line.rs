//! Styled line of the view: pieces of text, cut to columns and only then coloured.
//!
//! Names come from plan files, servers and other machines, so all text passes through [`safe`] before it reaches the
//! terminal: it removes escape sequences, control characters, direction changes and combining characters.
//!
//! Not implemented: Unicode's width tables. Wide characters are recognized by block, and combining marks are dropped.
//!
//! # Pitfalls
//!
//! A line is measured in columns, not in characters; a wide character takes two.

/// Style of a piece. Colour is only an addition: its meaning is in the text too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum TextStyle {
    /// Default style of the terminal.
    #[default]
    Normal,
    /// Headings.
    Bold,
    /// Labels.
    Dim,
    /// Progress.
    Good,
    /// Errors and limits.
    Bad,
}

impl TextStyle {
    fn code(self) -> &'static str {
        match self {
            Self::Normal => "",
            Self::Bold => "\x1b[1m",
            Self::Dim => "\x1b[2m",
            Self::Good => "\x1b[32m",
            Self::Bad => "\x1b[31m",
        }
    }
}

/// Pieces of one line.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct StyledLine {
    pieces: Vec<(TextStyle, String)>,
}

impl StyledLine {
    /// Creates a line of one piece.
    pub(super) fn of(style: TextStyle, text: &str) -> Self {
        Self::default().and(style, text)
    }

    /// Appends a piece and returns the line.
    pub(super) fn and(mut self, style: TextStyle, text: &str) -> Self {
        self.add(style, text);
        self
    }

    /// Appends a piece.
    pub(super) fn add(&mut self, style: TextStyle, text: &str) {
        self.pieces.push((style, safe(text)));
    }

    /// Width in columns.
    pub(super) fn columns(&self) -> usize {
        self.pieces.iter().map(|(_, text)| columns(text)).sum()
    }

    /// Renders at most `width` columns.
    pub(super) fn render(&self, width: usize, colour: bool, unicode: bool) -> String {
        let mut text = String::new();
        let mut room = width;
        let is_complete = self.columns() > width;
        for (style, piece) in &self.pieces {
            let cut = is_complete && columns(piece) >= room;
            // The ellipsis also represents pieces after one that just fits.
            let shown = if cut { fit(&format!("{piece}…"), room) } else { piece.clone() };
            room -= columns(&shown);
            let shown = if unicode { shown } else { ascii(&shown) };
            match style.code() {
                code if colour && !code.is_empty() && !shown.is_empty() => {
                    text.push_str(code);
                    text.push_str(&shown);
                    text.push_str("\x1b[0m");
                }
                _ => text.push_str(&shown),
            }
            if cut {
                break;
            }
        }
        // Trailing blanks carry no information, and a style would have ended before them.
        if !colour {
            text.truncate(text.trim_end_matches(' ').len());
        }
        text
    }
}

/// Width of a character in columns. Those of zero width were removed by [`safe`].
fn wide(c: char) -> usize {
    let wide = matches!(u32::from(c),
        0x1100..=0x115f | 0x231a..=0x231b | 0x2e80..=0xa4cf | 0xa960..=0xa97f | 0xac00..=0xd7a3 | 0xf900..=0xfaff
        | 0xfe30..=0xfe6f | 0xff00..=0xff60 | 0xffe0..=0xffe6 | 0x1f000..=0x1faff | 0x20000..=0x3fffd);
    1 + usize::from(wide)
}

/// Width of a safe text in columns.
pub(super) fn columns(text: &str) -> usize {
    text.chars().map(wide).sum()
}

/// Truncates to `width` columns, with an ellipsis if anything is cut.
pub(super) fn fit(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let mut short = String::new();
    let mut room = width.saturating_sub(1);
    for c in text.chars() {
        let Some(rest) = room.checked_sub(wide(c)) else { break };
        room = rest;
        short.push(c);
    }
    if width > 0 {
        short.push('…');
    }
    short
}

/// Removes everything that a terminal interprets: whole escape sequences, so that no arguments are left as garbage. All
/// kinds of white space become spaces.
pub(super) fn safe(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\n' | '\r' | '\t' | '\u{a0}' | '\u{202f}' | '\u{2028}' | '\u{2029}' => clean.push(' '),
            '\x1b' | '\u{90}' | '\u{98}' | '\u{9b}' | '\u{9d}'..='\u{9f}' => {
                let kind = if c == '\x1b' { rest.next() } else { Some(c) };
                match kind {
                    // CSI: arguments up to a final byte.
                    Some('[' | '\u{9b}') => {
                        while let Some(c) = rest.next_if(|c| (' '..='~').contains(c)) {
                            if ('@'..='~').contains(&c) {
                                break;
                            }
                        }
                    }
                    // OSC, DCS and other strings: up to BEL or ST; if unterminated, the rest of the text.
                    Some(']' | 'P' | 'X' | '^' | '_' | '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}') => {
                        while let Some(c) = rest.next() {
                            if matches!(c, '\x07' | '\u{9c}')
                                || c == '\x1b' && rest.next_if_eq(&'\\').is_some()
                            {
                                break;
                            }
                        }
                    }
                    // Charset selection and the like: intermediate characters, then one final character.
                    Some(' '..='/') => {
                        while rest.next_if(|c| (' '..='/').contains(c)).is_some() {}
                        rest.next();
                    }
                    _ => {}
                }
            }
            c if c.is_control() || invisible(c) => {}
            c => clean.push(c),
        }
    }
    clean
}

/// Whether a character has zero width or changes the direction of the following text.
fn invisible(c: char) -> bool {
    matches!(u32::from(c),
        0xad | 0x300..=0x36f | 0x483..=0x489 | 0x591..=0x5c7 | 0x610..=0x61a | 0x61c | 0x64b..=0x65f | 0x180e
        | 0x1ab0..=0x1aff | 0x1dc0..=0x1dff | 0x200b..=0x200f | 0x202a..=0x202e | 0x2060..=0x206f
        | 0x20d0..=0x20ff | 0xfe00..=0xfe0f | 0xfe20..=0xfe2f | 0xfeff | 0xfff9..=0xfffb | 0xe0000..=0xe0fff)
}

/// Replaces each character by one of ASCII for terminals without UTF-8, so that columns are kept.
pub(super) fn ascii(text: &str) -> String {
    let one = |c: char| match c {
        ' '..='~' => c,
        'µ' | 'μ' => 'u',
        '–' | '—' | '‑' => '-',
        '…' | '·' => '.',
        '’' => '\'',
        '“' | '”' | '„' => '"',
        '█' => '#',
        '░' => '.',
        '\u{a0}' | '\u{202f}' => ' ',
        _ => '?',
    };
    text.chars().map(one).collect()
}

/// Wraps a sentence to at most `most` lines at blanks; the rest becomes an ellipsis.
pub(super) fn wrapped(text: &str, width: usize, most: usize) -> Vec<String> {
    let text = safe(text);
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && columns(&line) + 1 + columns(word) > width {
            if lines.len() + 1 >= most {
                line = fit(&format!("{line}…"), width);
                break;
            }
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(&fit(word, width));
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}
