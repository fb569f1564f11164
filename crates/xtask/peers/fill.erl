%% Fills a new ejabberd (23.01, Mnesia) with accounts and rosters, then stops it.
%%
%% The records are those of ejabberd's own tables: `passwd` of ejabberd_auth_mnesia and `roster` of mod_roster_mnesia (include/mod_roster.hrl,
%% include/ejabberd_auth.hrl). The tables are filled in memory and dumped to disk once; with the transaction log, each contact would be
%% written to disk three times. Both become disc_copies, in memory with a copy on disk, as in `ejabberd.schema` in the data folder.
%%
%% Not implemented: registration hooks (mod_register, last activity) and roster versions, which ejabberd creates on a change.
%%
%% Pitfalls: the records are tuples without field names, so an ejabberd with other fields would start without rosters. Therefore
%% `cargo xtask bench peers` logs in and counts the contacts after each start.
-module(fill).
-export([start/0]).

start() ->
    try fill() of
        ok -> init:stop(0)
    catch
        Class:Reason:Stack ->
            io:format("the accounts could not be written: ~p:~p~n~p~n", [Class, Reason, Stack]),
            init:stop(1)
    end.

fill() ->
    Count = number("FILL_ACCOUNTS"),
    Ring = number("FILL_ROSTER"),
    Domain = text("FILL_DOMAIN"),
    Password = stored(os:getenv("FILL_FORMAT"), text("FILL_PASSWORD")),
    Prefix = text("FILL_PREFIX"),
    Names = list_to_tuple([<<Prefix/binary, (integer_to_binary(I))/binary>> || I <- lists:seq(0, Count - 1)]),
    Tables = [passwd, roster],
    lists:foreach(fun(Table) -> copies(Table, ram_copies) end, Tables),
    [mnesia:dirty_write(passwd, {passwd, {element(I + 1, Names), Domain}, Password(I)}) || I <- lists:seq(0, Count - 1)],
    [contacts(I, Count, Ring, Names, Domain) || I <- lists:seq(0, Count - 1), Ring > 0],
    lists:foreach(fun(Table) -> copies(Table, disc_copies) end, Tables),
    ok.

copies(Table, Kind) ->
    case mnesia:change_table_copy_type(Table, node(), Kind) of
        {atomic, ok} -> ok;
        {aborted, {already_exists, Table, _, Kind}} -> ok
    end.

%% A contact is {USJ, US, JID, name, subscription, ask, groups, askmessage, xs} with JID as {user, server, resource}.
contacts(I, Count, Ring, Names, Domain) ->
    Owner = {element(I + 1, Names), Domain},
    {User, _} = Owner,
    lists:foreach(
        fun(J) ->
            Jid = {element(J + 1, Names), Domain, <<>>},
            mnesia:dirty_write(roster, {roster, {User, Domain, Jid}, Owner, Jid, <<>>, both, none, [], <<>>, []})
        end, neighbours(I, Count, Ring)).

%% The same rule as `throng account bulk --roster ring:R`: R/2 on each side; an odd R pairs the accounts at the next distance off.
neighbours(I, N, Ring) ->
    Half = Ring div 2,
    Near = [(I + D + N) rem N || D <- lists:seq(-Half, Half), D =/= 0],
    lists:usort(Near ++ partner(I, N, Half + 1, Ring rem 2)) -- [I].

partner(_, _, _, 0) -> [];
partner(I, N, D, 1) ->
    case (I div D) rem 2 of
        0 when I + D < N -> [I + D];
        0 -> [];
        1 -> [I - D]
    end.

%% RFC 5802, section 3; one salt for all accounts, so that the key is derived once. 4096 rounds are ejabberd's own number.
%% "numbered" is the password followed by the account's number, readable.
stored("plain", Password) -> fun(_) -> Password end;
stored("numbered", Password) -> fun(I) -> <<Password/binary, (integer_to_binary(I))/binary>> end;
stored("scram", Password) ->
    Salt = crypto:strong_rand_bytes(16),
    Salted = crypto:pbkdf2_hmac(sha, Password, Salt, 4096, 20),
    Client = crypto:mac(hmac, sha, Salted, <<"Client Key">>),
    Server = crypto:mac(hmac, sha, Salted, <<"Server Key">>),
    Keys = {scram, base64:encode(crypto:hash(sha, Client)), base64:encode(Server), base64:encode(Salt), sha, 4096},
    fun(_) -> Keys end.

number(Name) -> list_to_integer(os:getenv(Name)).

text(Name) -> unicode:characters_to_binary(os:getenv(Name)).
