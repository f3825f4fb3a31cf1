//! Where messages are lost, delayed, and overtaken.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use seriatim::random::Random;

use crate::coverage::{Coverage, Fault};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// It never arrives.
    Request,
    /// It arrives, and nobody hears what came of it.
    Reply,
    /// It arrives when its sender has given it up.
    Overtaken,
}

/// One message, and its answer.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    pub there: Duration,
    pub back: Duration,
    pub loss: Option<Loss>,
}

impl Route {
    pub async fn go_there(&self) {
        wait(self.there).await;
    }

    pub async fn go_back(&self) {
        wait(self.back).await;
    }
}

async fn wait(duration: Duration) {
    if !duration.is_zero() {
        tokio::time::sleep(duration).await;
    }
}

/// How bad it is, in thousandths of all messages.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weather {
    pub lost_requests: u64,
    pub lost_replies: u64,
    pub overtaken: u64,
    pub slow: u64,
    /// How slow a slow one may be, in milliseconds.
    pub slowest: u64,
}

pub struct Network {
    weather: Weather,
    random: Mutex<Random>,
    is_healed: AtomicBool,
    coverage: Arc<Mutex<Coverage>>,
}

impl Network {
    pub fn new(weather: Weather, random: Random, coverage: Arc<Mutex<Coverage>>) -> Self {
        Network { weather, random: Mutex::new(random), is_healed: AtomicBool::new(false), coverage }
    }

    /// From now on everything arrives.
    pub fn heal(&self) {
        self.is_healed.store(true, Ordering::Relaxed);
    }

    pub fn route(&self) -> Route {
        let mut random = self.random.lock().unwrap();
        let brief = |random: &mut Random| Duration::from_millis(random.below(4).saturating_sub(1));
        let mut route = Route { there: brief(&mut random), back: brief(&mut random), loss: None };
        if self.is_healed.load(Ordering::Relaxed) {
            return route;
        }
        let Weather { lost_requests, lost_replies, overtaken, slow, slowest } = self.weather;
        let drawn = random.below(1_000);
        let (loss, fault) = if drawn < lost_requests {
            (Some(Loss::Request), Fault::LostRequest)
        } else if drawn < lost_requests + lost_replies {
            (Some(Loss::Reply), Fault::LostReply)
        } else if drawn < lost_requests + lost_replies + overtaken {
            (Some(Loss::Overtaken), Fault::Overtaken)
        } else if drawn < lost_requests + lost_replies + overtaken + slow {
            route.there += Duration::from_millis(random.below(slowest));
            route.back += Duration::from_millis(random.below(slowest));
            (None, Fault::Slow)
        } else {
            return route;
        };
        route.loss = loss;
        self.coverage.lock().unwrap().fault(fault);
        route
    }
}
