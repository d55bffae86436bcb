//! The job of `--slurm`: its GPUs come first in the list of GPUs, and Ctrl-R asks Slurm for it again.

use crate::app::App;
use crate::app::event::Effect;
use crate::base::text::Text;
use crate::protocol::slurm_job::{SlurmJob, SlurmNode};

/// Returns a sentence about a job that was found.
pub(crate) fn found(job: &SlurmJob) -> String {
    let (id, name, user) = (job.id(), &job.name, &job.user);
    let nodes = count(job.nodes.len(), "node");
    match job.gpus() {
        Some(gpus) => {
            let gpus = count(gpus, "GPU");
            format!("slurm {id} {name} of {user} has {gpus} on {nodes}; other GPUs there are dim")
        }
        None => format!("slurm {id} {name} of {user} has {nodes}; Slurm does not say which GPUs"),
    }
}

fn count(count: usize, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        count => format!("{count} {noun}s"),
    }
}

impl App {
    /// Returns the effect, and before it a question to Slurm where there is a job.
    pub(in crate::app) fn with_question_to_slurm(&self, effect: Effect) -> Effect {
        match &self.gpus.job {
            Some(_) => Effect::AskSlurm(Box::new(effect)),
            None => effect,
        }
    }

    /// Takes the answer of Slurm.
    pub(in crate::app) fn take_slurm_answer(&mut self, answer: Result<SlurmJob, Text>) {
        let sentence = match answer {
            // The GPUs of a job that has ended stay marked: its processes may be left there.
            Err(why) => why.to_string(),
            Ok(job) => {
                let before = self.gpus.job.as_ref();
                let is_shown = |node: &SlurmNode| {
                    before.is_some_and(|before| before.node(node.name.as_str()).is_some())
                };
                let sentence = match job.nodes.iter().filter(|node| !is_shown(node)).count() {
                    0 => found(&job),
                    missing => format!(
                        "slurm {} has {} that gputop does not show: start gputop again",
                        job.id(),
                        count(missing, "node")
                    ),
                };
                self.gpus.job = Some(job);
                sentence
            }
        };
        self.notice.set(sentence);
    }
}

#[cfg(test)]
mod tests {
    use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

    use super::*;
    use crate::app::AppOptions;
    use crate::app::event::Event;

    fn job(nodes: &[&str]) -> SlurmJob {
        let node = |name: &&str| SlurmNode {
            name: Text::from(*name),
            gpus: Some(vec![4, 5]),
        };
        SlurmJob {
            number: 4242,
            task: None,
            name: "llama".into(),
            user: "alice".into(),
            state: "RUNNING".into(),
            run_time: None,
            nodes: nodes.iter().map(node).collect(),
            asked_at: 0,
        }
    }

    #[test]
    fn ctrl_r_asks_slurm_again_and_the_answer_is_a_sentence() {
        let mut app = App::new(AppOptions {
            slurm_job: Some(job(&["gpu-01"])),
            ..AppOptions::default()
        });
        let key = KeyEvent::new(KeyCode::Char('r'), KeyModifiers::CONTROL);
        let effect = app.update(Event::Key(key));
        assert!(matches!(effect, Some(Effect::AskSlurm(_))), "{effect:?}");
        for (answer, sentence) in [
            (
                Ok(job(&["gpu-01"])),
                "slurm 4242 llama of alice has 2 GPUs on 1 node; other GPUs there are dim",
            ),
            (
                Ok(job(&["gpu-01", "gpu-02"])),
                "slurm 4242 has 1 node that gputop does not show: start gputop again",
            ),
            (
                Err(Text::from("job 4242 has ended (COMPLETED)")),
                "job 4242 has ended (COMPLETED)",
            ),
        ] {
            app.update(Event::Slurm(answer));
            assert_eq!(app.notice.text(), Some(sentence));
        }
        let mut without_job = App::new(AppOptions::default());
        let effect = without_job.update(Event::Key(key));
        assert!(!matches!(effect, Some(Effect::AskSlurm(_))), "{effect:?}");
    }
}
