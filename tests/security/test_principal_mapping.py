"""Rules that turn a certificate's name into a principal's (KIP-371). Cases are those of Kafka's own tests."""

import pytest

from odradek.model import ConfigurationError
from odradek.security import principal_mapping

RULES = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, "
    "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U, RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, DEFAULT"
)


@pytest.mark.parametrize(
    ("rules", "name", "mapped"),
    [
        ("DEFAULT", "CN=a,O=b", "CN=a,O=b"),
        (RULES, "CN=Ann,OU=ServiceUsers,O=Org,C=DE", "ann"),
        (RULES, "CN=Ann,OU=Dev,O=acme,L=Bonn,ST=NW,C=DE", "ann@dev"),
        (RULES, "cn=ann,ou=dev,dc=acme,dc=com", "ANN@DEV"),
        (RULES, "cN=ann,OU=Dev,O=acme inc", "ANN"),
        (RULES, "OU=Dev,O=acme inc,C=DE", "OU=Dev,O=acme inc,C=DE"),
        (r"RULE:^CN=((\\, *|\w)+)(,.*|$)/$1/,DEFAULT", r"CN=Doe\, Ann,OU=X", r"Doe\, Ann"),
        ("RULE:CN=(a),.*/$1/", "CN=b,O=c", None),
        ("RULE:CN=(.*)/$1/", "O=c,CN=b", None),  # the pattern has to match the whole name
        ("", "CN=a", None),
        (", ,DEFAULT, ,", "CN=a", "CN=a"),
        ("  RULE:CN=(.*)/$1/ ,  DEFAULT  ", "CN=a", "a"),
        (r"RULE:CN=(.*)\/(.*)/$2\/\$1/", "CN=a/b", "b/$1"),
        ("RULE:CN=, DEFAULT, /DEFAULT/,DEFAULT", "CN=, DEFAULT, ", "DEFAULT"),
        ("RULE:CN=(.)(.)/$12$3$0/", "CN=ab", "a2$3CN=ab"),
        ("RULE:CN=(a)?b/<$1>/", "CN=b", "<>"),
    ],
)
def test_the_first_matching_rule_gives_the_principals_name(rules: str, name: str, mapped: str | None) -> None:
    assert principal_mapping(rules)(name) == mapped


@pytest.mark.parametrize(
    "rules",
    [
        *("default", "DEFAUL", "DEFAULT/L", "DEFAULT/U", "DEFAULT DEFAULT", "RULE:"),
        *("RULE:CN=(.*?),OU=ServiceUsers.*/$1", "rule:^CN=(.*?)$/$1/", "RULE:^CN=(.*?)$/$1/L/U"),
        *("RULE:^CN=(.*?)$/L", "RULE:^CN=(.*?)$/LU", "RULE:CN=(.*)/$1/X", "RULE:CN=(/x/", "RULE:(?!x)a/b/"),
        *("RULE:a/$/", "RULE:a/${name}/"),
    ],
)
def test_a_wrong_rule_is_refused_at_the_start(rules: str) -> None:
    with pytest.raises(ConfigurationError, match=r"ssl\.principal\.mapping\.rules"):
        principal_mapping(rules)
