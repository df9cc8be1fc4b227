
ByJ─┐пDQCPP├O┘JёPHLмДPфок└яD@├O┘JёPH┐P┐Lиек└яD@┘н┘NенdяcP┐лEо┐хдпёпCлDм└и└MфO#пKcпходпёпCлDмEндQф<KcпхоdQ#PDMДп