//! Shows only the processes of the GPU whose number is typed.

use std::time::Duration;

use crate::app::lists::gpu_list::gpu_rows;
use crate::app::{App, List};
use crate::base::time::ViewerTime;
use crate::model::{HostGpu, HostProcess};

/// The longest time between two digits of one number.
const PAUSE: Duration = Duration::from_secs(1);

/// The number that was typed last, and the time since its last digit.
#[derive(Debug, Default)]
pub(in crate::app) struct TypedNumber(Option<(u32, ViewerTime)>);

impl TypedNumber {
    pub(in crate::app) fn advance(&mut self, elapsed: ViewerTime) {
        if let Some((_, since)) = &mut self.0 {
            *since += elapsed;
        }
    }

    /// The number with one more digit, if the time for that is not over; else the digit alone.
    fn candidates(&self, digit: u32) -> impl Iterator<Item = u32> + use<> {
        let before = self.0.filter(|(_, since)| since.duration() <= PAUSE);
        let longer = before.and_then(|(number, _)| number.checked_mul(10)?.checked_add(digit));
        longer.into_iter().chain([digit])
    }
}

impl App {
    /// Shows only the processes of the GPU with this number, on the host under the cursor, or those
    /// of all GPUs if it is shown alone already. On a host with more than ten GPUs, a number may
    /// have several digits.
    pub(in crate::app) fn show_gpu(&mut self, digit: u32) {
        let host = match self.focus {
            List::Gpus => self.gpus.selected_row(self.fleet()).map(|row| row.host),
            List::Processes => self
                .processes
                .selected_process()
                .map(|HostProcess { host, .. }| host),
        };
        let host = host.or_else(|| self.fleet().hosts().next().map(|(host, _)| host));
        let find = |number: u32| {
            let mut rows = gpu_rows(self.fleet())
                .filter(|row| Some(row.host) == host && row.gpu.facts.parent.is_none());
            Some((number, rows.find(|row| row.gpu.facts.index == number)?.id()))
        };
        let found = self.typed_number.candidates(digit).find_map(find);
        self.typed_number.0 = Some((
            found.as_ref().map_or(digit, |(number, _)| *number),
            ViewerTime::ZERO,
        ));
        match found {
            Some((_, gpu)) => self.show_only(gpu),
            None => self.notice.set(format!("there is no GPU {digit}")),
        }
    }

    /// Shows only the processes of a GPU, or those of all GPUs if it is shown alone already.
    pub(in crate::app) fn show_only(&mut self, gpu: HostGpu) {
        if self.processes.view.gpu.as_ref() == Some(&gpu) {
            return self.show_all_gpus();
        }
        if self.processes.view.gpu.is_none() {
            self.before_gpu = Some((self.focus, self.processes.selected_subject()));
        }
        self.processes.view.gpu = Some(gpu);
        self.focus = List::Processes;
    }

    /// Shows the processes of all GPUs, with the cursor where it was before those of one GPU alone
    /// were shown.
    pub(in crate::app) fn show_all_gpus(&mut self) {
        let (list, subject) = self.before_gpu.take().unwrap_or((self.focus, None));
        self.focus = list;
        self.processes.show_all_gpus(subject);
    }
}
