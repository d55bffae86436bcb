//! The page of all news: its lines, and the cursor, which stays on its item.

use super::{PageLine, Writer};
use crate::app::fleet::news;
use crate::app::fleet::viewer_clock::Clocks;
use crate::model::{Fleet, NewsKind, Severity};
use crate::output::text_wrap::wrap_and_cut;
use crate::protocol::host_key::HostKey;

/// An item of the news: its host, and its number there.
pub(crate) type NewsId = (HostKey, u64);

/// A line of the screen of one item of the news. The time is empty where the text of the line
/// before continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewsPart {
    pub id: NewsId,
    pub time: String,
    pub kind: NewsKind,
    pub severity: Severity,
    pub text: String,
    pub is_selected: bool,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct NewsList {
    /// The items on the page, the latest first.
    shown: Vec<NewsId>,
    /// The item under the cursor; `None` while the cursor stays on the latest.
    selected: Option<NewsId>,
}

impl NewsList {
    /// The item under the cursor; `None` if the page is empty.
    pub(in crate::app) fn selected(&self) -> Option<NewsId> {
        self.shown.get(self.place()).copied()
    }

    fn place(&self) -> usize {
        self.shown
            .iter()
            .position(|id| Some(*id) == self.selected)
            .unwrap_or(0)
    }

    pub(in crate::app) fn select(&mut self, id: NewsId) {
        self.selected = Some(id);
    }

    pub(super) fn step(&mut self, by: isize) {
        let last = self.shown.len().saturating_sub(1);
        self.selected = self
            .shown
            .get(self.place().saturating_add_signed(by).min(last))
            .copied();
    }

    /// Lists the news, latest first, whose line contains all words. Returns the line of the cursor.
    pub(super) fn write(
        &mut self,
        writer: &mut Writer,
        fleet: &Fleet,
        clocks: &Clocks,
        words: &str,
    ) -> usize {
        let words: Vec<String> = words.split_whitespace().map(str::to_lowercase).collect();
        let mut found: Vec<(NewsId, String, String, _)> = Vec::new();
        for line in news::lines(fleet) {
            let (time, sentence) = (line.time(fleet, clocks), line.sentence(fleet));
            let whole = format!("{time} {sentence}").to_lowercase();
            if words.iter().all(|word| whole.contains(word)) {
                found.push(((line.host, line.item.number), time, sentence, line.item));
            }
        }
        self.shown = found.iter().map(|(id, ..)| *id).collect();
        let (selected, mut cursor) = (self.selected(), 0);
        for (id, mut time, sentence, item) in found {
            let is_selected = Some(id) == selected;
            if is_selected {
                cursor = writer.lines.len();
            }
            for text in wrap_and_cut(&sentence, writer.width, 0) {
                let (kind, severity, time) = (item.kind, item.severity, std::mem::take(&mut time));
                writer.lines.push(PageLine::News(NewsPart {
                    id,
                    time,
                    kind,
                    severity,
                    text,
                    is_selected,
                }));
            }
        }
        if writer.lines.is_empty() {
            writer.field(
                "",
                if words.is_empty() {
                    "nothing happened yet"
                } else {
                    "no line has these words"
                },
            );
        }
        cursor
    }
}
