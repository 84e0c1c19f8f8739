//! The weights that the proxy's servers get.

use weir_health::State;
use weir_model::{Pool, Server};

use super::Traffic;
use super::words::Word;

impl Traffic {
    /// Gives the proxy the weights that follow from configuration, operators' words and checks.
    pub(super) fn reweigh(&mut self, pool: &str) {
        let Some(pool) = self.desired.pool(pool) else {
            return;
        };
        let words = &self.words;
        let base = |server: &Server| {
            let word = words.get(&pool.name, &server.name);
            word.map_or(server.weight, Word::weight)
        };
        self.standings.settle(pool, &base);
        let (weighed, _) = self.standings.weigh(pool, None, &base);
        let own = pool.servers.iter().zip(weighed);
        let own = own.map(|(server, weighed)| (server, weighed.effective));
        let sorry = pool.sorry.iter().map(|server| {
            let serves = self.standings.sorry_serves(pool, None);
            (server, if serves { base(server).max(1) } else { 0 })
        });
        for (server, effective) in own.chain(sorry) {
            let weight = Some(effective).filter(|weight| *weight != server.weight);
            let keeps = self.keeps_clients(pool, server);
            self.proxy.keep_sticky(&pool.name, &server.name, keeps);
            if self.proxy.has_server(&pool.name, &server.name)
                && let Err(error) = self.proxy.set_weight(&pool.name, &server.name, weight)
            {
                tracing::warn!(%error, "a server's weight did not reach the proxy");
            }
        }
    }

    /// Whether clients that belong to a server of weight 0 still come: an operator's 0 quiesces; down and drained are
    /// another matter.
    fn keeps_clients(&self, pool: &Pool, server: &Server) -> bool {
        let standing = self.standings.get(&pool.name, &server.name);
        let is_up = standing.is_none_or(|standing| standing.state != State::Down);
        let quiesced = match self.words.get(&pool.name, &server.name) {
            Some(Word::Drain | Word::Maint) => false,
            Some(Word::Weight(weight)) => weight == 0,
            None => server.weight == 0,
        };
        quiesced && is_up
    }
}
