//! Which messages a notification sends.

use super::message::Message;

/// The messages that a notification sends. An empty list lets all messages through; another one
/// only messages that name one of its elements.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct MessageFilter {
    /// Kinds of messages.
    pub(crate) kinds: Vec<String>,
    /// Names of users.
    pub(crate) users: Vec<String>,
    /// Indices or UUIDs of GPUs.
    pub(crate) gpus: Vec<String>,
    /// Names, origins or IDs of jobs, such as `train.py`, `slurm 4711` or `4711`.
    pub(crate) jobs: Vec<String>,
}

impl MessageFilter {
    /// Returns whether a message is to be sent.
    pub(crate) fn lets_through(&self, message: &Message) -> bool {
        let names_one_of = |list: &[String], values: &[&str]| {
            list.is_empty()
                || values
                    .iter()
                    .any(|value| list.iter().any(|element| element == value))
        };
        let gpus: Vec<&str> = message.gpu_ids.iter().map(String::as_str).collect();
        let jobs: Vec<&str> = message.job_ids.iter().map(String::as_str).collect();
        names_one_of(&self.kinds, &[message.kind])
            && names_one_of(&self.users, &Vec::from_iter(message.user.as_deref()))
            && names_one_of(&self.gpus, &gpus)
            && names_one_of(&self.jobs, &jobs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns one of the lists of a filter.
    type Field = fn(&mut MessageFilter) -> &mut Vec<String>;

    #[test]
    fn each_list_lets_only_messages_through_that_name_one_of_its_elements() {
        let message = Message {
            kind: "leak",
            gpu_ids: vec!["1".to_owned(), "GPU-a".to_owned()],
            user: Some("ada".to_owned()),
            job_ids: vec![
                "train.py".to_owned(),
                "slurm 42".to_owned(),
                "42".to_owned(),
            ],
            ..Message::test("node1".to_owned(), "a sentence".to_owned())
        };
        let without = Message::test("node1".to_owned(), "a sentence".to_owned());
        let list = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        assert!(MessageFilter::default().lets_through(&message));
        assert!(MessageFilter::default().lets_through(&without));
        let rows: [(Field, &[&str], &[&str]); 6] = [
            (|filter| &mut filter.kinds, &["idle", "leak"], &["xid"]),
            (|filter| &mut filter.users, &["ada"], &["ad", "root"]),
            (|filter| &mut filter.gpus, &["1"], &["0", "11"]),
            (|filter| &mut filter.gpus, &["GPU-a"], &["GPU-b"]),
            (|filter| &mut filter.jobs, &["41", "42"], &["4"]),
            (|filter| &mut filter.jobs, &["train.py"], &["train"]),
        ];
        for (field, passing, stopping) in rows {
            let mut filter = MessageFilter::default();
            *field(&mut filter) = list(passing);
            assert!(filter.lets_through(&message), "{passing:?}");
            assert!(!filter.lets_through(&without), "{passing:?}");
            *field(&mut filter) = list(stopping);
            assert!(!filter.lets_through(&message), "{stopping:?}");
        }
    }
}
