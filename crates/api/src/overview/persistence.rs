//! Serialisation of the overview's last hour, so that it survives a restart of the process.
//!
//! A gzip stream (RFC 1952, whose checksum detects damage): one line of JSON, which names the series, and their
//! values as `f32`, little-endian, oldest first, one series after another. Series are matched by name, so that a file
//! of another version is read as far as both know the same ones. Reading is bounded, whatever the file contains.
//!
//! Not implemented: the location of the file, which the program decides; totals, which begin at zero with each
//! process.
//!
//! # Pitfalls
//!
//! The time between the last sample and the first of the next process is a gap. Charts must not draw a line across
//! it, nor rates be computed across it.

use std::io::{self, BufRead, BufReader, Read, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};

use super::{HistoryState, INTERVAL, OverviewHistory, POINTS, SERIES};

/// Maximum bytes of a file; a larger one is not read.
pub const MAX_FILE_BYTES: u64 = 1 << 20;
/// Maximum bytes of the unpacked file: room for twice the present number of series.
const MAX_UNPACKED_BYTES: u64 = (SERIES.len() * 2 * POINTS * size_of::<f32>()) as u64;
const FORMAT: &str = "throng-overview-1";

#[derive(Serialize, Deserialize)]
struct SavedHeader {
    format: String,
    /// Time of the last sample in seconds since 1970.
    last: u64,
    /// Seconds between two samples.
    interval: u64,
    /// Number of samples of each series.
    points: usize,
    series: Vec<String>,
}

impl OverviewHistory {
    /// Serialises the history; `None` before the first sample.
    pub(crate) fn save(&self) -> io::Result<Option<Vec<u8>>> {
        let (head, values) = {
            let state = self.0.lock();
            if state.len == 0 {
                return Ok(None);
            }
            let head = SavedHeader {
                format: FORMAT.to_owned(),
                last: state.last,
                interval: INTERVAL,
                points: state.len,
                series: SERIES.iter().map(|(name, _)| (*name).to_owned()).collect(),
            };
            let mut values = Vec::with_capacity(SERIES.len() * state.len * size_of::<f32>());
            let first = state.next + POINTS - state.len;
            for ring in &state.rings {
                let points = (first..first + state.len).map(|at| ring[at % POINTS]);
                points.for_each(|value| values.extend_from_slice(&value.to_le_bytes()));
            }
            (head, values)
        };
        let mut out = GzEncoder::new(Vec::new(), Compression::new(4));
        serde_json::to_writer(&mut out, &head)?;
        out.write_all(b"\n")?;
        out.write_all(&values)?;
        out.finish().map(Some)
    }

    /// Restores what an earlier process saved, if it is of the last hour before `now`, in seconds since 1970. If this
    /// process has taken samples already, they remain and the saved ones are ignored. Returns whether it was
    /// restored.
    pub(crate) fn restore(&self, bytes: &[u8], now: u64) -> io::Result<bool> {
        let broken = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what);
        let mut file = BufReader::new(GzDecoder::new(bytes).take(MAX_UNPACKED_BYTES));
        let mut line = Vec::new();
        file.read_until(b'\n', &mut line)?;
        let head: SavedHeader = serde_json::from_slice(&line)?;
        if head.format != FORMAT || head.points > POINTS || head.series.len() > SERIES.len() * 2 {
            return Err(broken("its format is not supported"));
        }
        let mut state = HistoryState::default();
        state.clear();
        let mut values = vec![0_u8; head.points * size_of::<f32>()];
        for name in &head.series {
            file.read_exact(&mut values)?;
            let index = SERIES.iter().position(|(known, _)| known == name);
            let Some(ring) = index.and_then(|at| state.rings.get_mut(at)) else { continue };
            for (slot, value) in ring.iter_mut().zip(values.chunks_exact(size_of::<f32>())) {
                *slot = value.try_into().map_or(f32::NAN, f32::from_le_bytes);
            }
        }
        // To the end, where the checksum is.
        if file.read(&mut [0])? != 0 {
            return Err(broken("its length does not match its header"));
        }
        (state.len, state.next, state.last) = (head.points, head.points % POINTS, head.last);
        let hour = POINTS as u64 * INTERVAL;
        let recent = head.last <= now && now - head.last < hour && head.interval == INTERVAL;
        let mut current = self.0.lock();
        if !recent || current.len > 0 || head.points == 0 {
            return Ok(false);
        }
        state.before = std::mem::take(&mut current.before);
        *current = state;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn of(points: impl IntoIterator<Item = (u64, f32)>) -> OverviewHistory {
        let history = OverviewHistory::default();
        for (second, value) in points {
            let point = std::array::from_fn(|at| if at == 1 { f32::NAN } else { value + at as f32 });
            history.0.lock().add(second, point);
        }
        history
    }

    fn packed(text: &[u8]) -> Vec<u8> {
        let mut out = GzEncoder::new(Vec::new(), Compression::fast());
        out.write_all(text).unwrap();
        out.finish().unwrap()
    }

    #[test]
    fn saved_points_are_restored_with_a_gap() {
        for count in [1, 3, POINTS as u64, POINTS as u64 + 5] {
            let before = of((0..count).map(|n| (1_000 + n * INTERVAL, n as f32)));
            let last = 1_000 + (count - 1) * INTERVAL;
            let after = OverviewHistory::default();
            assert!(after.restore(&before.save().unwrap().unwrap(), last + 7).unwrap());
            assert_eq!(after.answer(None), before.answer(None), "{count} points");
            after.0.lock().add(last + 3 * INTERVAL, [9.0; SERIES.len()]);
            let state = after.0.lock();
            let tail: Vec<Value> = state.after(0, last - INTERVAL);
            assert_eq!(tail, [json!(count - 1), Value::Null, Value::Null, json!(9)]);
        }
    }

    #[test]
    fn a_file_that_is_too_old_or_from_the_future_is_ignored() {
        let saved = of([(5_000, 1.0)]).save().unwrap().unwrap();
        for (now, taken) in [(4_999, false), (5_000, true), (8_599, true), (8_600, false), (u64::MAX, false)]
        {
            let history = OverviewHistory::default();
            assert_eq!(history.restore(&saved, now).unwrap(), taken, "{now}");
            assert_eq!(history.0.lock().len, usize::from(taken));
        }
        // Samples of this process remain.
        let running = of([(5_100, 7.0)]);
        assert!(!running.restore(&saved, 5_101).unwrap());
        assert_eq!(running.0.lock().last, 5_100);
        assert_eq!(OverviewHistory::default().save().unwrap(), None);
    }

    #[test]
    fn a_damaged_file_is_rejected_and_changes_nothing() {
        let good = of((0..50).map(|n| (1_000 + n * INTERVAL, n as f32))).save().unwrap().unwrap();
        let refused = |bytes: &[u8]| {
            let history = OverviewHistory::default();
            let refused = history.restore(bytes, 1_200).is_err();
            assert_eq!(history.0.lock().len, 0);
            refused
        };
        for cut in [0, 1, 10, 100, good.len() / 2, good.len() - 8, good.len() - 1] {
            assert!(refused(&good[..cut]), "cut at {cut}");
        }
        let mut flipped = good.clone();
        let middle = flipped.len() / 2;
        flipped[middle] ^= 1;
        assert!(refused(&flipped));
        for text in [
            "not JSON\n".to_owned(),
            r#"{"format":"other","last":1,"interval":2,"points":1,"series":[]}"#.to_owned() + "\n",
            format!(r#"{{"format":"{FORMAT}","last":1,"interval":2,"points":99999,"series":[]}}"#) + "\n",
            format!(r#"{{"format":"{FORMAT}","last":1000,"interval":2,"points":1,"series":[]}}"#) + "\nmore",
        ] {
            assert!(refused(&packed(text.as_bytes())), "{text}");
        }
        // A small file that unpacks to a very large one.
        let head = format!(r#"{{"format":"{FORMAT}","last":1000,"interval":2,"points":1,"series":[]}}"#);
        let mut bomb = head.into_bytes();
        bomb.push(b'\n');
        bomb.resize(bomb.len() + (MAX_UNPACKED_BYTES as usize) * 8, 0);
        assert!(refused(&packed(&bomb)));
    }

    #[test]
    fn series_are_found_by_name() {
        let last = SERIES[3].0;
        let head = format!(
            r#"{{"format":"{FORMAT}","last":1000,"interval":2,"points":2,"series":["gone","{last}"]}}"#
        );
        let mut text = head.into_bytes();
        text.push(b'\n');
        [1.0_f32, 2.0, 3.0, 4.0].iter().for_each(|value| text.extend_from_slice(&value.to_le_bytes()));
        let history = OverviewHistory::default();
        assert!(history.restore(&packed(&text), 1_001).unwrap());
        let state = history.0.lock();
        assert_eq!((state.after(3, 0), state.after(0, 0)), (vec![json!(3), json!(4)], vec![Value::Null; 2]));
    }

    #[test]
    fn the_saved_history_of_a_busy_hour_is_below_the_read_limit() {
        let history = OverviewHistory::default();
        let mut noise = fastrand::Rng::with_seed(1);
        for n in 0..POINTS as u64 {
            let point = std::array::from_fn(|_| f32::from_bits(0x3f80_0000 | noise.u32(..) >> 9));
            history.0.lock().add(1_000 + n * INTERVAL, point);
        }
        let saved = history.save().unwrap().unwrap();
        assert!((saved.len() as u64) < MAX_FILE_BYTES / 2, "{}", saved.len());
    }
}
